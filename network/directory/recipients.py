"""Cache of registered numbers and the numbers that each of them blocks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from tidings.aio.batcher import Batcher
from tidings.aio.lru import LRU
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory

# Recipients remembered, about 150 bytes each.
REMEMBERED = 100_000
_NOBODY: frozenset[str] = frozenset()


class Recipients:
    """Registered numbers and the numbers they block. Absence of a number is never cached.

    changes: number of changes so far; data read before the latest change is not cached.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: LRU[str, frozenset[str]] = LRU(REMEMBERED)
        self._lookups: Batcher[str, frozenset[str] | None] = Batcher("recipients", self._flush, max_in_flight=2)
        self.changes = 0

    def get(self, number: str) -> frozenset[str] | None:
        """Return the numbers that a number blocks, `None` when they are not cached."""
        return self._known.get(number)

    def look_up(self, number: str) -> asyncio.Future[frozenset[str] | None]:
        """Return the numbers that a number blocks, `None` when it is not registered. Raises `BatcherFull`."""
        return self._lookups.put(number)

    def learn(self, numbers: Iterable[str], blocks: Mapping[str, Collection[str]], changes: int) -> None:
        """Cache registered numbers and their blocks, unless `changes` has risen since they were read."""
        if changes == self.changes:
            for number in numbers:
                self._known.put(number, frozenset(blocks[number]) if number in blocks else _NOBODY)

    def changed(self, number: str) -> None:
        """Drop a number whose registration or blocks were changed. Call this after the commit."""
        self.changes += 1
        self._known.pop(number)

    def changed_all(self) -> None:
        """Drop all numbers: another process may have changed any of them."""
        self.changes += 1
        self._known.clear()

    async def _flush(self, numbers: Sequence[str]) -> Sequence[frozenset[str] | None]:
        async def work(connection: Connection) -> tuple[set[str], dict[str, set[str]]]:
            registered = await directory.list_registered(connection, set(numbers))
            return registered, await directory.list_blocks(connection, registered)

        # A change made during the read may be missing from it: the result is valid as a response, but must not be
        # cached.
        changes = self.changes
        registered, blocks = await self._database.query(work, patience=math.inf)
        self.learn(registered, blocks, changes)
        return [frozenset(blocks.get(number, ())) if number in registered else None for number in numbers]
