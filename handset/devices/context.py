"""What all parts of a fleet share."""

from __future__ import annotations

import dataclasses

from handset.devices.vault import Vault
from tidings.runtime.clock import Clock
from tidings.storage.database import Database


@dataclasses.dataclass(frozen=True, slots=True)
class FleetContext:
    """The store of the devices that one process runs, and the process's clock.

    name: under which the fleet keeps its rows. vault: seals what is secret in them.
    """

    name: str
    database: Database
    vault: Vault
    clock: Clock

    def now(self) -> int:
        """Unix milliseconds."""
        return int(self.clock.now() * 1000)
