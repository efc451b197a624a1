"""Checks the tokens of devices, and says what each has left of its one-time pre-keys."""

from __future__ import annotations

import math
from collections.abc import Sequence

from network import tokens
from tidings.runtime.batcher import Batcher
from tidings.storage import directory, prekeys
from tidings.storage.database import Connection, Database
from tidings.storage.prekeys import Counts


class Logins:
    """A thousand devices that log in at once cost a few queries."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batcher: Batcher[str, tuple[bytes, Counts] | None] = Batcher("logins", self._flush, max_in_flight=2)
        self._changes = 0

    def changed(self) -> None:
        """Some token was replaced: logins under way look again. Call this after the commit."""
        self._changes += 1

    async def verify(self, number: str, token: str) -> Counts | None:
        """The pre-keys that the device has left, `None` when the token is not its token. Raises `BatcherFull`.

        Waits while the database is away.
        """
        while True:
            changes = self._changes
            found = await self._batcher.submit(number)
            if changes == self._changes:
                break
        if found is None or not tokens.matches(token, found[0]):
            return None
        return found[1]

    async def _flush(self, numbers: Sequence[str]) -> Sequence[tuple[bytes, Counts] | None]:
        async def work(connection: Connection) -> tuple[dict[str, bytes], dict[str, Counts]]:
            hashes = await directory.list_token_hashes(connection, set(numbers))
            return hashes, await prekeys.count_left(connection, list(hashes))

        hashes, counts = await self._database.query(work, patience=math.inf)
        return [(hashes[number], counts[number]) if number in hashes else None for number in numbers]
