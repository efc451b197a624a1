"""Parts that the handlers of several pages share."""

from __future__ import annotations

import dataclasses

from tidings.storage.database import Database
from tidings.testing.faults import FaultFile


@dataclasses.dataclass(frozen=True)
class ConsoleTables:
    """Database of the business."""

    database: Database


class FaultCount:
    """Number of calls that are still to fail because a test requested it."""

    def __init__(self, faults: FaultFile) -> None:
        self.faults = faults

    def total(self) -> int:
        """Return the number of calls of all targets."""
        return sum(fault.left for fault in self.faults.list_all())
