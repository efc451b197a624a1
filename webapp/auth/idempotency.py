"""`Idempotency-Key`: a request that is repeated with its key gets the first response, for 24 hours.

A request uses its key in the transaction that processes it. A refused request leaves the key unused. The Coreapp
(for messages) or the transaction itself (for media) detects repetitions. The lookup here serves a repeated
message that the Webapp would refuse now, because its template or file was changed or deleted.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from fastapi import Depends, Request

from tidings.aio.batcher import Batcher, BatcherFull
from tidings.aio.clock import Clock
from tidings.storage.business import idempotency
from tidings.storage.business.idempotency import UsedKey
from tidings.storage.database import Database
from tidings.wire.codes import PARAMETER_INVALID
from webapp.auth.tokens import Caller
from webapp.http import headers
from webapp.http.errors import IdempotencyKeyReused, InvalidRequest, Overloaded

MAX_KEY = 255  # characters
_is_key = re.compile(rb"[!-~]{1,%d}" % MAX_KEY).fullmatch

_encode = msgspec.json.Encoder(order="sorted").encode


def key_of(request: Request) -> str:
    """Return the request's idempotency key; empty for none. Raises `InvalidRequest`."""
    raw = headers.find(request.scope, b"idempotency-key")
    if raw is None:
        return ""
    if not _is_key(raw):
        details = f"Idempotency-Key: should be 1 to {MAX_KEY} printable ASCII characters without blanks"
        raise InvalidRequest.because(PARAMETER_INVALID, details)
    return raw.decode()


async def _key(request: Request) -> str:
    return key_of(request)


IdempotencyKey = Annotated[str, Depends(_key)]


def fingerprint_of(body: object) -> bytes:
    """Return a hash of a body. It is equal for bodies with the same content, whatever the order of their fields."""
    return hashlib.sha256(_encode(body)).digest()


class FirstResponses:
    """Lookup of responses to earlier requests with a key. Several lookups share a statement.

    At most 10,000 lookups wait. A further request is refused with 503.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._reads: Batcher[_Lookup, UsedKey | None] = Batcher(
            "first-answers", self._read, max_size=500, max_pending=10_000
        )

    async def find(self, caller: Caller, resource: str, key: str, fingerprint: bytes) -> str | None:
        """Return the id that the caller's first request with this key created; `None` when there was none.

        Raises `IdempotencyKeyReused` and `Overloaded`.
        """
        lookup = _Lookup(caller.account, resource, idempotency.key_of(caller.username, key))
        try:
            used = await self._reads.submit(lookup)
        except BatcherFull:
            raise Overloaded("too many requests wait for a lookup of their idempotency keys") from None
        if used is None:
            return None
        if not hmac.compare_digest(used.fingerprint, fingerprint):
            raise IdempotencyKeyReused()
        return used.answer

    async def _read(self, lookups: Sequence[_Lookup]) -> Sequence[UsedKey | None]:
        since = self._clock.now_ms() - idempotency.LIFETIME_MS
        found: dict[_Lookup, UsedKey | None] = {}
        async with self._database.reading() as connection:
            for account, resource in dict.fromkeys((lookup.account, lookup.resource) for lookup in lookups):
                keys = [lookup.key for lookup in lookups if (lookup.account, lookup.resource) == (account, resource)]
                stored = await idempotency.look_up(connection, account, resource, keys, since)
                found |= {_Lookup(account, resource, key): one.used for key, one in stored.items()}
        return [found[lookup] for lookup in lookups]


class _Lookup(NamedTuple):
    account: str
    resource: str
    key: idempotency.IdempotencyKey
