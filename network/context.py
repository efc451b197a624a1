"""State that all packages of one network process share."""

from __future__ import annotations

import dataclasses

from network.directory.directory import Directory
from network.routing.mailbox_usage import MailboxUsages
from network.routing.reservations import Reservations
from network.routing.router import Router
from network.settings import Settings
from tidings.aio.clock import Clock
from tidings.storage.database import Database


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkContext:
    """Database, directory and router of one process, with its settings and clock."""

    settings: Settings
    database: Database
    clock: Clock
    directory: Directory
    mailbox_usages: MailboxUsages
    router: Router

    def now(self) -> int:
        """Return Unix milliseconds."""
        return self.clock.now_ms()

    def reservations(self) -> Reservations:
        """Return reservations for one transaction that stores envelopes: hold them around it by `with`."""
        return Reservations(self.router, self.clock, self.settings.message_ttl)
