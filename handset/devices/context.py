"""Context that all parts of a fleet share."""

from __future__ import annotations

import dataclasses

from handset.devices.row_sealer import RowSealer
from tidings.aio.clock import Clock
from tidings.storage.database import Database


@dataclasses.dataclass(frozen=True, slots=True)
class FleetLimits:
    """Limits of a fleet."""

    recent: int = 50_000  # keys of received messages in memory; older ones are looked up in the inbox
    # Envelopes, without as many group messages that are encrypted again. Above it nothing more is stored until the
    # network accepts some.
    outbox: int = 50_000
    sent: int = 100_000  # messages that are kept for peers that request them again


@dataclasses.dataclass(frozen=True, slots=True)
class FleetContext:
    """Store of the devices that one process runs, and the process's clock."""

    name: str  # name of the fleet in its rows
    database: Database
    sealer: RowSealer  # seals the secrets in the rows
    clock: Clock
    limits: FleetLimits = FleetLimits()
    spacing: float = 0.05  # seconds between two commits under steady load

    def now(self) -> int:
        """Return the current time in Unix milliseconds."""
        return self.clock.now_ms()
