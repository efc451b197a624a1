"""Checks of user names and passwords: cheap when the result is cached, as costly as argon2 otherwise."""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import secrets

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU
from tidings.storage.business import users
from tidings.storage.business.users import User
from tidings.storage.database import Database
from webapp.api.users import basic
from webapp.api.users.guessing import Guessing
from webapp.api.users.passwords import Hasher
from webapp.http.errors import RateLimitExceeded, Unauthenticated

# Seconds for which a result is cached after its last use, and seconds for which a user's row is cached. The latter
# bounds how long a password that was changed through another Webapp still works here.
RESULT_CACHED_SECONDS = 300.0
ROW_CACHED_SECONDS = 1.0

_LIMIT = 1_000


@dataclasses.dataclass(frozen=True, slots=True)
class _Checked:
    """Cached result of a password check."""

    matched: bool  # whether the password matched the stored hash
    password_hash: str
    used_at: float  # time of the last use, seconds of the monotonic clock


class Credentials:
    """Checks user names and passwords.

    Results are cached under a key of this process, bound to the stored hash. A wrong password is cached for the
    address that tried it. So a client that logs in before every request costs neither a hash nor a token, and a
    client with an outdated password does not exhaust a bucket. The code path and the time are the same whether
    the user or the password is wrong. Concurrent checks of the same password share one hash.
    """

    def __init__(self, database: Database, hasher: Hasher, guessing: Guessing, *, clock: Clock) -> None:
        self._database = database
        self._hasher = hasher
        self._guessing = guessing
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._checked: LRU[bytes, _Checked] = LRU(_LIMIT)
        # Includes names without a user.
        self._rows: LRU[str, tuple[User | None, float]] = LRU(_LIMIT)
        # Each check has passed `admit`, or is about to be refused by it.
        self._checking: dict[bytes, asyncio.Future[User | None]] = {}
        # Unauthenticated clients get one hash at a time, which leaves the other threads to familiar clients.
        self._unknown_users = asyncio.Semaphore(1)
        self._decoy_hash = ""

    async def start(self) -> None:
        """Compute the hash that passwords of unknown users are checked against."""
        self._decoy_hash = await self._hasher.hash(secrets.token_urlsafe(32))

    async def check(self, username: str, password: str, address: str) -> User:
        """Return the user with this name and password.

        Raises `Unauthenticated`, `RateLimitExceeded` when too many passwords are tried, and `Overloaded`.
        """
        right, wrong = self._digest(username, password), self._digest(username, password, address)
        user = await self._remembered(right, wrong, username)
        if user is None:
            user = await self._check_once(right, wrong, username, password, address)
        if user is None:
            raise Unauthenticated("wrong user name or password", scheme="Basic")
        await self._guessing.succeeded(username, address)
        return user

    def recognises(self, header: bytes) -> bool:
        """Return whether this `Authorization` value contains a name and password that were right recently."""
        found = basic.parse(header)
        if found is None:
            return False
        checked, row = self._checked.get(self._digest(*found)), self._rows.get(found[0])
        if checked is None or row is None or row[0] is None:
            return False
        is_recent = self._clock.monotonic() - checked.used_at <= RESULT_CACHED_SECONDS
        return checked.matched and is_recent and hmac.compare_digest(row[0].password_hash, checked.password_hash)

    def learn(self, user: User, password: str) -> None:
        """Cache a password that was just set through this process."""
        now = self._clock.monotonic()
        self._rows.put(user.username, (user, now))
        self._checked.put(self._digest(user.username, password), _Checked(True, user.password_hash, now))

    def evict(self, username: str) -> None:
        """Drop the cached row of a user that was changed through this process."""
        self._rows.pop(username)

    def is_known(self, username: str) -> bool:
        """Return whether a user of this name was seen here recently."""
        row = self._rows.get(username)
        return row is not None and row[0] is not None

    def _digest(self, *parts: str) -> bytes:
        framed = b"".join(len(raw).to_bytes(4, "big") + raw for raw in (part.encode() for part in parts))
        return hmac.digest(self._key, framed, "sha256")

    async def _remembered(self, right: bytes, wrong: bytes, username: str) -> User | None:
        """Return the user when the password is cached as right; `None` when it is not cached.

        Raises `Unauthenticated` when it is cached as wrong.
        """
        now = self._clock.monotonic()
        for digest in (right, wrong):
            checked = self._checked.get(digest)
            if checked is None or now - checked.used_at > RESULT_CACHED_SECONDS:
                continue
            user = await self._row(username)
            if not hmac.compare_digest(user.password_hash if user else "", checked.password_hash):
                continue
            self._checked.put(digest, dataclasses.replace(checked, used_at=now))
            if checked.matched:
                return user
            raise Unauthenticated("wrong user name or password", scheme="Basic")
        return None

    async def _row(self, username: str) -> User | None:
        now = self._clock.monotonic()
        row = self._rows.get(username)
        if row is not None and now - row[1] <= ROW_CACHED_SECONDS:
            return row[0]
        user = await self._find_user(username)
        self._rows.put(username, (user, now))
        return user

    async def _check_once(self, right: bytes, wrong: bytes, username: str, password: str, address: str) -> User | None:
        checking = self._checking.get(right)
        if checking is not None:
            try:
                # Shielded, because other requests may wait for the same check when this one is cancelled.
                return await asyncio.shield(checking)
            except RateLimitExceeded:
                # The check may have been refused because of another address. This address has buckets for itself.
                await self._guessing.admit(username, address)
                return await self._verify(right, wrong, username, password, address)
        checking = asyncio.ensure_future(self._admit_and_verify(right, wrong, username, password, address))
        self._checking[right] = checking

        def discard(done: asyncio.Future[User | None]) -> None:
            del self._checking[right]
            # Retrieve the exception, in case all waiting requests were cancelled.
            done.cancelled() or done.exception()

        checking.add_done_callback(discard)
        return await asyncio.shield(checking)

    async def _admit_and_verify(
        self, right: bytes, wrong: bytes, username: str, password: str, address: str
    ) -> User | None:
        await self._guessing.admit(username, address)
        return await self._verify(right, wrong, username, password, address)

    async def _verify(self, right: bytes, wrong: bytes, username: str, password: str, address: str) -> User | None:
        user = await self._find_user(username)
        stored = user.password_hash if user else ""
        if self._guessing.is_familiar(username, address):
            matches = await self._hasher.verify(stored or self._decoy_hash, password)
        else:
            async with self._unknown_users:
                matches = await self._hasher.verify(stored or self._decoy_hash, password)
        now = self._clock.monotonic()
        self._rows.put(username, (user, now))
        found = user is not None and matches
        self._checked.put(right if found else wrong, _Checked(found, stored, now))
        return user if found else None

    async def _find_user(self, username: str) -> User | None:
        async with self._database.reading() as connection:
            return await users.find_user(connection, username)
