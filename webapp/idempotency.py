"""`Idempotency-Key`: a request that is repeated under its key gets the first answer, for 24 hours.

A request uses its key up when it is done, in the transaction that does it; one that was refused leaves it free. What
is looked up here answers repeats even when what the request was about (a template, a file) is gone by then.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated

import msgspec
from fastapi import Depends, Request

from tidings.runtime.clock import Clock
from tidings.storage.business import idempotency
from tidings.storage.database import Database
from tidings.wire.codes import PARAMETER_INVALID
from webapp import headers
from webapp.errors import IdempotencyKeyReused, InvalidRequest
from webapp.tokens import Caller

MAX_KEY = 255  # characters

_encode = msgspec.json.Encoder(order="sorted").encode


def key_of(request: Request) -> str:
    """The request's key, empty for none. Raises `InvalidRequest`."""
    raw = headers.find(request.scope, b"idempotency-key")
    if raw is None:
        return ""
    if not 0 < len(raw) <= MAX_KEY or not all(32 < byte < 127 for byte in raw):
        details = f"Idempotency-Key: should be 1 to {MAX_KEY} printable ASCII characters without blanks"
        raise InvalidRequest.because(PARAMETER_INVALID, details)
    return raw.decode()


async def _key(request: Request) -> str:
    return key_of(request)


IdempotencyKey = Annotated[str, Depends(_key)]


def fingerprint_of(body: object) -> bytes:
    """Equal for bodies that say the same, in whatever order their fields stand."""
    return hashlib.sha256(_encode(body)).digest()


class FirstAnswers:
    """Answers that were given to requests with a key."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def find(self, caller: Caller, resource: str, key: str, fingerprint: bytes) -> str | None:
        """The id that the first request of this key made; `None` when there was none. Raises `IdempotencyKeyReused`."""
        used = await self.find_used(caller, resource, key)
        if used is None:
            return None
        if not hmac.compare_digest(used.fingerprint, fingerprint):
            raise IdempotencyKeyReused()
        return used.answer

    async def find_used(self, caller: Caller, resource: str, key: str) -> idempotency.UsedKey | None:
        """The first request of a key, whatever its body was."""
        since = int(self._clock.now() * 1000) - idempotency.LIFETIME_MS
        async with self._database.reading() as connection:
            used = await idempotency.list_used(connection, caller.account, resource, [idempotency.hash_of(key)], since)
        return used[0] if used else None
