"""Codes that prove control of a number. No telephone company is connected: the code is written to the log."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets

from prometheus_client import Counter

from network.errors import RateLimited, Unauthorized
from tidings.aio.clock import Clock
from tidings.aio.token_buckets import RateLimit
from tidings.storage.database import Connection, Database
from tidings.storage.network import challenges
from tidings.storage.network.challenges import Challenge

log = logging.getLogger(__name__)

TRIES = Counter("tidings_network_code_tries_total", "Registration codes that were tried", ["digits", "result"])

VALID_MS = 10 * 60 * 1000  # Milliseconds for which a code is valid.
ATTEMPTS = 5  # Wrong tries of one code; then it is void.
# Limits of one address for one number: milliseconds between two codes, length of a window in milliseconds, and codes
# per window.
SPACING_MS = 30 * 1000
WINDOW_MS = 60 * 60 * 1000
PER_WINDOW = 5
# Wrong tries of six-digit codes of one number, of all addresses together: at most 10 + 365 in any year, so that a guess
# succeeds with a probability of 375 in a million. Each six-digit code reserves a token until it is tried, so that
# others cannot void it. While no token is left the number's codes have 16 digits, which cannot be guessed. So guessing
# does not lock out the number's owner.
NUMBER_TRIES = RateLimit(interval=24 * 3600 * 1000, burst=10)
SHORT, LONG = 6, 16
# Origin of codes that are requested and tried with the registration key, from any address. The key is sufficient proof,
# so these codes are short and their tries do not count for the number.
KEY_HOLDER = "key"

RIGHT, WRONG, REFUSED = "right", "wrong", "refused"
for _digits in (SHORT, LONG):
    for _result in (RIGHT, WRONG, REFUSED):
        TRIES.labels(_digits, _result)


class Codes:
    """Codes issued to an address for a number, and redeemed once. Only a keyed hash is stored.

    A code belongs to the address that requested it: requests and wrong tries of other addresses neither void it nor use
    up its attempts.
    """

    def __init__(self, database: Database, key: str, clock: Clock) -> None:
        self._database = database
        self._key = key.encode()
        self._clock = clock

    async def issue(self, number: str, origin: str) -> None:
        """Log a new code; the previous one of this number and address becomes void. Raises `RateLimited`."""
        now = self._clock.now_ms()
        # Codes of earlier attempts by hash; one of them may have been committed.
        made: dict[bytes, str] = {}

        async def work(connection: Connection) -> str:
            last = await challenges.find(connection, number, origin)
            if last is not None and last.code_hash in made:
                return made[last.code_hash]
            started_at, issued = count(last, now)
            digits = SHORT
            if origin != KEY_HOLDER:
                full_at = NUMBER_TRIES.bound(await challenges.read_tries(connection, number), now)
                if NUMBER_TRIES.wait(full_at, now, 1 + await _count_reserved(connection, number, origin, now)):
                    digits = LONG
            code = f"{secrets.randbelow(10**digits):0{digits}d}"
            code_hash = self._hash(number, code)
            made[code_hash] = code
            await challenges.put(
                connection,
                Challenge(
                    number=number,
                    origin=origin,
                    code_hash=code_hash,
                    digits=digits,
                    issued_at=now,
                    expires_at=now + VALID_MS,
                    attempts_left=ATTEMPTS,
                    window_started_at=started_at,
                    issued_in_window=issued + 1,
                ),
            )
            return code

        code = await self._database.persist(work, retry_seconds=20)
        # This line replaces the text message: read access to the log gives control of every number without a lock.
        fields = {"number": number, "code": code, "address": origin, "valid_s": VALID_MS // 1000}
        log.info("code.issued", extra=fields)

    async def check(self, number: str, origin: str, code: str) -> None:
        """Check a code without redeeming it. Raises `Unauthorized` when it is wrong, used, expired or void."""
        now, digest = self._clock.now_ms(), self._hash(number, code)

        async def work(connection: Connection) -> tuple[int, str]:
            found = await challenges.find(connection, number, origin)
            if found is None or not found.attempts_left or now >= found.expires_at:
                return 0, REFUSED
            is_bounded, full_at = found.digits == SHORT and origin != KEY_HOLDER, 0
            if is_bounded:
                full_at = NUMBER_TRIES.bound(await challenges.read_tries(connection, number), now)
            # The first try has a reserved token.
            if is_bounded and found.attempts_left < ATTEMPTS:
                reserved = await _count_reserved(connection, number, origin, now)
                if NUMBER_TRIES.wait(full_at, now, 1 + reserved):
                    return found.digits, REFUSED
            if hmac.compare_digest(found.code_hash, digest):
                return found.digits, RIGHT
            await challenges.use_attempt(connection, number, origin)
            if is_bounded:
                await challenges.write_tries(connection, number, NUMBER_TRIES.consume(full_at, now))
            return found.digits, WRONG

        # At most one commit: a repeated one would count a wrong code twice.
        digits, result = await self._database.commit(work, retry_seconds=20)
        if digits:
            TRIES.labels(digits, result).inc()
        if result == WRONG:
            raise Unauthorized("the code is wrong", reason="wrong_code")
        if result == REFUSED and digits:
            detail = "too many wrong codes were tried for this number: request a new code, which is longer"
            raise Unauthorized(detail, reason="wrong_code")
        if result == REFUSED:
            detail = "this address has no usable code for this number"
            raise Unauthorized(detail, reason="wrong_code")

    async def use(self, number: str, origin: str, code: str) -> None:
        """Redeem a code that `check` accepted. Raises `Unauthorized` when another registration redeemed it first."""
        digest = self._hash(number, code)
        if not await self._database.commit(lambda c: challenges.take(c, number, origin, digest)):
            raise Unauthorized("the code has been used", reason="wrong_code")

    def _hash(self, number: str, code: str) -> bytes:
        return hmac.digest(self._key, f"{number} {code}".encode(), hashlib.sha256)


async def _count_reserved(connection: Connection, number: str, origin: str, now: int) -> int:
    """Return how many tokens of `NUMBER_TRIES` the untried codes of other addresses reserve."""
    return await challenges.count_untried(
        connection, number, digits=SHORT, attempts=ATTEMPTS, now=now, besides=(origin, KEY_HOLDER)
    )


def count(last: Challenge | None, now: int) -> tuple[int, int]:
    """Return the start of the window of a code issued now, and the codes already issued in it. Raises `RateLimited`.

    now: Unix milliseconds, as is the start of the window.
    """
    if last is None:
        return now, 0
    if now < last.issued_at + SPACING_MS:
        raise RateLimited("a code was sent a moment ago", retry_after=1 + (last.issued_at + SPACING_MS - now) // 1000)
    end = last.window_started_at + WINDOW_MS
    if now >= end:
        return now, 0
    if last.issued_in_window >= PER_WINDOW:
        raise RateLimited(f"{PER_WINDOW} codes were sent within an hour", retry_after=1 + (end - now) // 1000)
    return last.window_started_at, last.issued_in_window
