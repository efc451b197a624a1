"""The context that all parts of a fleet share."""

from __future__ import annotations

import dataclasses

from handset.devices.vault import Vault
from tidings.runtime.clock import Clock
from tidings.storage.database import Database


@dataclasses.dataclass(frozen=True, slots=True)
class FleetLimits:
    """How much a fleet holds.

    recent: keys of received messages in memory; older ones are looked up in the inbox.
    outbox: envelopes; beyond it nothing more is stored until the network accepts some.
    sent:   messages that are kept for peers that ask for them again.
    """

    recent: int = 50_000
    outbox: int = 50_000
    sent: int = 100_000


@dataclasses.dataclass(frozen=True, slots=True)
class FleetContext:
    """The store of the devices that one process runs, and the process's clock.

    name: under which the fleet keeps its rows. vault: seals what is secret in them. spacing: seconds between two
    commits of a steady stream.
    """

    name: str
    database: Database
    vault: Vault
    clock: Clock
    limits: FleetLimits = FleetLimits()
    spacing: float = 0.05

    def now(self) -> int:
        """Unix milliseconds."""
        return int(self.clock.now() * 1000)
