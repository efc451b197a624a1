"""Bulk checks of which numbers are registered, and the numbers that are to be notified when others register."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from prometheus_client import Histogram

from tidings.aio.lru import LRU
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory
from tidings.wire import addresses

CHECKED = Histogram(
    "tidings_network_checked_numbers", "Numbers in one check", buckets=(1, 2, 5, 10, 50, 100, 500, 1000, 5000, 10_000)
)

MAX_NUMBERS = 10_000  # Numbers in one check.

# Unregistered numbers remembered, about 200 bytes each, and askers of each. Further askers, and those whose check was
# made at a process that has ended since, learn of the registration at their next check.
REMEMBERED = 50_000
ASKERS = 8

_NOBODY: frozenset[str] = frozenset()

# (number of the asker, partition of its device)
Asker = tuple[str, int]


class Busy(Exception):
    """A check of this device or partition is in flight already; wait for its response."""


class MissingNumbers:
    """Numbers that are not in the directory, each with the numbers that checked it (askers); in memory only."""

    def __init__(self) -> None:
        self._askers: LRU[str, frozenset[str]] = LRU(REMEMBERED)

    def add(self, asker: str, numbers: Iterable[str]) -> None:
        """Record a check. Call it before the directory is read, so that a number registering during the read is found
        or announced.
        """
        for number in numbers:
            askers = self._askers.get(number) or _NOBODY
            if len(askers) < ASKERS:
                self._set(number, askers | {asker})

    def discard(self, asker: str, numbers: Iterable[str]) -> None:
        """Remove the asker of these numbers, which the check has found in the directory."""
        for number in numbers:
            self._set(number, (self._askers.get(number) or _NOBODY) - {asker})

    def take(self, numbers: Iterable[str]) -> list[tuple[str, str]]:
        """Return and remove the pairs (number, asker) of these numbers, which are now registered."""
        pairs = [(number, asker) for number in numbers for asker in sorted(self._askers.get(number) or _NOBODY)]
        for number, _ in pairs:
            self._askers.pop(number)
        return pairs

    def _set(self, number: str, askers: frozenset[str]) -> None:
        if askers:
            self._askers.put(number, askers)
        else:
            self._askers.pop(number)


class Lookups:
    """Checks, one in flight for each asker; the number of askers is bounded by the connections."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.missing_numbers = MissingNumbers()
        self._asking: set[Asker] = set()

    def begin(self, asker: Asker) -> None:
        """Mark a check of the asker as in flight, until `end`. Raises `Busy`."""
        if asker in self._asking:
            raise Busy(asker[0])
        self._asking.add(asker)

    def end(self, asker: Asker) -> None:
        """Mark the asker's check as finished."""
        self._asking.discard(asker)

    async def check(self, asker: str, numbers: Sequence[str]) -> list[str]:
        """Return the registered numbers, in the order requested, each once. The asker is notified when the others
        register.

        Waits while the database is unreachable.
        """
        CHECKED.observe(len(numbers))
        wanted = dict.fromkeys(number for number in numbers if addresses.is_number(number))

        async def work(connection: Connection) -> set[str]:
            return await directory.list_registered(connection, wanted)

        self.missing_numbers.add(asker, wanted)
        registered = await self._database.query(work, retry_seconds=math.inf)
        self.missing_numbers.discard(asker, registered)
        return [number for number in wanted if number in registered]
