"""Idempotency keys: a repeated request with the same key gets the response of the first one, after any crash.

The key is written in the same transaction as the result of the request, so neither exists without the other.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.errors import KeyInUse
from tidings.aio.batcher import Batcher
from tidings.storage import outages
from tidings.storage.business import idempotency
from tidings.storage.business.idempotency import LIFETIME_MS, MESSAGES, FoundKey, IdempotencyKey, UsedKey
from tidings.wire import core

RETRY_SECONDS = 4.0  # seconds that a caller waits for an unreachable database
# Seconds between two reads under load, as between two commits: a transaction costs as much CPU as ten keys. A key that
# arrives after a pause is read at once.
SPACING = 0.01

CHECKED = Counter(
    "tidings_idempotency_keys_total",
    "Messages with an idempotency key, by place of the lookup",
    ["checked"],
)


class IdempotencyKeys:
    """Idempotency keys of the messages of one account. Memory holds the keys in progress, one per request."""

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        # Keys in progress, without their user, so that two users never use one key at the same time. The value is the
        # stored form of the use; empty until that is known.
        self._in_progress: dict[str, bytes] = {}
        self._by_filter = CHECKED.labels("filter")
        self._by_database = CHECKED.labels("database")
        self._reads: Batcher[IdempotencyKey, FoundKey] = Batcher(
            "idempotency-read", self._read, max_size=500, spacing=SPACING
        )

    async def once(self, request: core.AcceptMessage, accept: Callable[[], Awaitable[str]]) -> str:
        """Return the result of `accept`, or the stored result if the key was used before.

        Only a completed request uses up its key: a refused one may be corrected and sent again. Raises `KeyInUse`, and
        the errors of `accept`.
        """
        text = request.idempotency_key
        if text in self._in_progress:
            raise KeyInUse(in_progress=True)
        key = idempotency.key_of(request.username, text)
        self._in_progress[text] = b""
        try:
            if self._context.used_keys.is_fresh(key):
                self._by_filter.inc()
                self._in_progress[text] = key.shared
                return await accept()
            self._by_database.inc()
            found = await outages.within(RETRY_SECONDS, self._reads.put(key))
            if found.used is None:
                self._in_progress[text] = found.form
                return await accept()
        finally:
            del self._in_progress[text]
        if not hmac.compare_digest(found.used.fingerprint, request.fingerprint):
            raise KeyInUse(in_progress=False)
        return found.used.answer

    def use(self, request: core.AcceptMessage, message_id: str) -> Sequence[UsedKey]:
        """Return the rows to commit with the message that `once` has made; none for a request without a key.

        The key counts as used from now on, even if the commit fails.
        """
        if not request.idempotency_key:
            return ()
        form, now = self._in_progress[request.idempotency_key], self._context.now()
        self._context.used_keys.add(form)
        username = request.username or None
        return (UsedKey(self._context.account, MESSAGES, form, request.fingerprint, message_id, now, username),)

    async def close(self) -> None:
        """Accept no more requests, and finish the pending database accesses that requests wait for."""
        await self._reads.close()

    async def _read(self, keys: Sequence[IdempotencyKey]) -> Sequence[FoundKey]:
        since = self._context.now() - LIFETIME_MS
        found = await self._context.database.query(
            lambda connection: idempotency.look_up(connection, self._context.account, MESSAGES, keys, since),
            retry_seconds=RETRY_SECONDS,
        )
        return [found[key] for key in keys]
