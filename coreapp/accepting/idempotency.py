"""A request that is repeated under its key is answered as the first time, whatever crashed in between.

The key is written in the transaction that writes what the request made, so there is never one without the other.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence

from coreapp.errors import KeyInUse
from tidings.runtime.batcher import Batcher
from tidings.runtime.clock import Clock
from tidings.storage import outages
from tidings.storage.business import idempotency
from tidings.storage.business.idempotency import LIFETIME_MS, MESSAGES, UsedKey
from tidings.storage.database import Database
from tidings.wire import core

PATIENCE = 4.0  # seconds that a caller waits for a database that is away


class IdempotencyKeys:
    """Those of the messages of one account. In memory are only the keys in progress, as many as questions."""

    def __init__(self, database: Database, clock: Clock, *, account: str) -> None:
        self._database = database
        self._clock = clock
        self._account = account
        self._in_progress: set[bytes] = set()
        self._reads: Batcher[bytes, UsedKey | None] = Batcher("idempotency-read", self._read, max_size=1000)

    async def once(self, question: core.AcceptMessage, accept: Callable[[], Awaitable[str]]) -> str:
        """What `accept` returns, or returned when the key was used first. Raises `KeyInUse`, and what `accept` raises.

        A key is used up only by a request that was done: one that was refused may be mended and tried again.
        """
        key = idempotency.hash_of(question.idempotency_key)
        if key in self._in_progress:
            raise KeyInUse(in_progress=True)
        self._in_progress.add(key)
        try:
            used = await outages.within(PATIENCE, self._reads.put(key))
            if used is None:
                return await accept()
        finally:
            self._in_progress.discard(key)
        if not hmac.compare_digest(used.fingerprint, question.fingerprint):
            raise KeyInUse(in_progress=False)
        return used.answer

    def use(self, question: core.AcceptMessage, message_id: str) -> Sequence[UsedKey]:
        """What must be committed with the message that a request with a key makes; nothing for one without."""
        if not question.idempotency_key:
            return ()
        key = idempotency.hash_of(question.idempotency_key)
        now = int(self._clock.now() * 1000)
        return (UsedKey(self._account, MESSAGES, key, question.fingerprint, message_id, now),)

    async def close(self) -> None:
        """Answer those who ask already."""
        await self._reads.close()

    async def _read(self, keys: Sequence[bytes]) -> Sequence[UsedKey | None]:
        since = int(self._clock.now() * 1000) - LIFETIME_MS
        used = await self._database.query(
            lambda connection: idempotency.list_used(connection, self._account, MESSAGES, keys, since),
            patience=PATIENCE,
        )
        by_key = {row.key_hash: row for row in used}
        return [by_key.get(key) for key in keys]
