"""Bulk checks of which numbers are registered."""

from __future__ import annotations

import math
from collections.abc import Sequence

from prometheus_client import Histogram

from network.directory.missing_numbers import MissingNumbers
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory
from tidings.wire import addresses

CHECKED = Histogram(
    "tidings_network_checked_numbers", "Numbers in one check", buckets=(1, 2, 5, 10, 50, 100, 500, 1000, 5000, 10_000)
)

MAX_NUMBERS = 10_000  # Numbers in one check.

# (number of the asker, partition of its device)
Asker = tuple[str, int]


class Busy(Exception):
    """A check of this device or partition is in flight already; wait for its response."""


class Lookups:
    """Checks, one in flight for each asker; the number of askers is bounded by the connections."""

    def __init__(self, database: Database, missing_numbers: MissingNumbers) -> None:
        self._database = database
        self._missing_numbers = missing_numbers
        self._asking: set[Asker] = set()

    def begin(self, asker: Asker) -> None:
        """Mark a check of the asker as in flight, until `end`. Raises `Busy`."""
        if asker in self._asking:
            raise Busy(asker[0])
        self._asking.add(asker)

    def end(self, asker: Asker) -> None:
        """Mark the check as finished."""
        self._asking.discard(asker)

    async def check(self, asker: str, numbers: Sequence[str]) -> list[str]:
        """Return the registered numbers, in the order requested, each once. The asker is notified when the others
        register.

        Waits while the database is away.
        """
        CHECKED.observe(len(numbers))
        wanted = dict.fromkeys(number for number in numbers if addresses.is_number(number))

        async def work(connection: Connection) -> set[str]:
            return await directory.list_registered(connection, wanted)

        self._missing_numbers.asked(asker, wanted)
        registered = await self._database.query(work, patience=math.inf)
        self._missing_numbers.found(asker, registered)
        return [number for number in wanted if number in registered]
