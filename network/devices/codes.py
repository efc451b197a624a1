"""Codes that prove who holds a number. There is no telephone company behind us: the code goes into the log."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets

from network.errors import TooMany, Unauthorized
from tidings.runtime.clock import Clock
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory
from tidings.storage.network.directory import IssuedCode

log = logging.getLogger(__name__)

VALID_MS = 10 * 60 * 1000
ATTEMPTS = 5
# For one number: so long between two codes, and so many in each window.
SPACING_MS = 30 * 1000
WINDOW_MS = 60 * 60 * 1000
PER_WINDOW = 5


class Codes:
    """Codes that are issued, and redeemed once. Only a keyed hash is stored."""

    def __init__(self, database: Database, key: str, clock: Clock) -> None:
        self._database = database
        self._key = key.encode()
        self._clock = clock

    async def issue(self, number: str) -> None:
        """Log a new code; the one before it is void. Raises `TooMany`."""
        code = f"{secrets.randbelow(1_000_000):06d}"
        now = self._now()

        async def work(connection: Connection) -> None:
            started_at, issued = count(await directory.find_code(connection, number), now)
            await directory.put_code(
                connection,
                IssuedCode(
                    number=number,
                    code_hash=self._hash(number, code),
                    issued_at=now,
                    expires_at=now + VALID_MS,
                    attempts_left=ATTEMPTS,
                    window_started_at=started_at,
                    issued_in_window=issued + 1,
                ),
            )

        await self._database.commit(work)
        # This line is the text message: whoever reads the log is the holder of every number.
        log.info("code.issued", extra={"number": number, "code": code, "valid_s": VALID_MS // 1000})

    async def redeem(self, number: str, code: str) -> None:
        """Redeem a code. Raises `Unauthorized` when it is wrong, used, expired or guessed at too often."""
        now = self._now()

        async def work(connection: Connection) -> tuple[bool, bool]:
            last = await directory.find_code(connection, number)
            usable = last is not None and last.attempts_left > 0 and now < last.expires_at
            right = last is not None and hmac.compare_digest(last.code_hash, self._hash(number, code))
            if usable and right:
                await directory.void_code(connection, number)
            elif usable:
                await directory.use_attempt(connection, number)
            return usable, right

        usable, right = await self._database.commit(work)
        if not usable:
            raise Unauthorized("there is no code for this number that can still be used", reason="wrong_code")
        if not right:
            raise Unauthorized("the code is wrong", reason="wrong_code")

    def _now(self) -> int:
        return int(self._clock.now() * 1000)

    def _hash(self, number: str, code: str) -> bytes:
        return hmac.digest(self._key, f"{number} {code}".encode(), hashlib.sha256)


def count(last: IssuedCode | None, now: int) -> tuple[int, int]:
    """When the window began that a code issued now falls in, and how many it holds already. Raises `TooMany`."""
    if last is None:
        return now, 0
    if now < last.issued_at + SPACING_MS:
        raise TooMany("a code was sent just now", retry_after=1 + (last.issued_at + SPACING_MS - now) // 1000)
    end = last.window_started_at + WINDOW_MS
    if now >= end:
        return now, 0
    if last.issued_in_window >= PER_WINDOW:
        raise TooMany(f"{PER_WINDOW} codes were sent within an hour", retry_after=1 + (end - now) // 1000)
    return last.window_started_at, last.issued_in_window
