"""Cache of registered numbers and the numbers that each of them blocks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tidings.aio.batcher import Batcher
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory

# Recipients remembered, about 50 bytes each.
REMEMBERED = 100_000
_NOBODY: frozenset[str] = frozenset()


class Recipients:
    """Registered numbers and the numbers they block. Those read first are dropped first. Absence of a number is never
    cached.

    get: return the numbers that a number blocks; `None` when they are not cached.
    changes: number of changes so far; data read before the latest change is not cached.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, frozenset[str]] = {}
        self.get: Callable[[str], frozenset[str] | None] = self._known.get
        self._lookups: Batcher[str, frozenset[str] | None] = Batcher("recipients", self._flush, max_in_flight=2)
        self.changes = 0

    def look_up(self, number: str) -> asyncio.Future[frozenset[str] | None]:
        """Return the numbers that a number blocks, `None` when it is not registered. Raises `BatcherFull`."""
        return self._lookups.put(number)

    def learn(self, numbers: Iterable[str], blocks: Mapping[str, Collection[str]], changes: int) -> None:
        """Cache registered numbers and their blocks, unless `changes` has risen since they were read."""
        if changes == self.changes:
            for number in numbers:
                self._known[number] = frozenset(blocks[number]) if blocks.get(number) else _NOBODY
            while len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]

    def changed(self, number: str) -> None:
        """Drop a number whose registration or blocks were changed. Call this after the commit."""
        self.changes += 1
        self._known.pop(number, None)

    def changed_all(self) -> None:
        """Drop all numbers: another process may have changed any of them."""
        self.changes += 1
        self._known.clear()

    async def _flush(self, numbers: Sequence[str]) -> Sequence[frozenset[str] | None]:
        async def work(connection: Connection) -> dict[str, set[str]]:
            return await directory.list_recipients(connection, set(numbers))

        # A change made during the read may be missing from it: the result is valid as a response, but must not be
        # cached.
        changes = self.changes
        blocks = await self._database.query(work, retry_seconds=math.inf)
        self.learn(blocks, blocks, changes)
        return [frozenset(blocks[number]) if number in blocks else None for number in numbers]
