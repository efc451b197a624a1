"""Is this the password of this user? Cheap when it was right a moment ago, as costly as argon2 otherwise."""

from __future__ import annotations

import asyncio
import hmac
import secrets

from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU
from tidings.storage.business import users
from tidings.storage.business.users import User
from tidings.storage.database import Database
from webapp.errors import RateLimitExceeded, Unauthenticated
from webapp.users.guessing import Guessing
from webapp.users.passwords import Hasher

# Seconds that a right password is remembered, and that a user's row is believed, which bounds how long a password that
# was changed through another Webapp still works here.
REMEMBERED = 300.0
BELIEVED = 1.0

_LIMIT = 1_000


class Credentials:
    """Checks user names and passwords.

    What was right is remembered under a key of this process, bound to the stored hash. Whether the user or the password
    is wrong makes no difference in path or time. The same question asked twice at a time is checked once.
    """

    def __init__(self, database: Database, hasher: Hasher, guessing: Guessing, *, clock: Clock) -> None:
        self._database = database
        self._hasher = hasher
        self._guessing = guessing
        self._clock = clock
        self._key = secrets.token_bytes(32)
        # Digest of user and password, to the stored hash that it matched and when that was.
        self._right: LRU[bytes, tuple[str, float]] = LRU(_LIMIT)
        self._rows: LRU[str, tuple[User, float]] = LRU(_LIMIT)
        # Bounded by the hasher, which refuses what is too much.
        self._checking: dict[bytes, asyncio.Future[User | None]] = {}
        self._nobody = ""

    async def start(self) -> None:
        """Make the hash that passwords of unknown users are checked against."""
        self._nobody = await self._hasher.hash(secrets.token_urlsafe(32))

    async def check(self, username: str, password: str, address: str) -> User:
        """The user of this name and password.

        Raises `Unauthenticated`, after a while; `RateLimitExceeded` when this address guesses too much; `Overloaded`.
        """
        digest = self._digest(username, password)
        user = await self._remembered(digest, username)
        if user is not None:
            return user
        if not self._guessing.begin(username, address):
            raise RateLimitExceeded("too many wrong passwords from this address", retry_after=5)
        try:
            user = await self._checked(digest, username, password)
            if user is None:
                await asyncio.sleep(self._guessing.failed(username, address))
                raise Unauthenticated("wrong user name or password", scheme="Basic")
        finally:
            self._guessing.end(address)
        self._guessing.succeeded(username, address)
        return user

    def forget(self, username: str) -> None:
        """The user was changed here: read it again."""
        self._rows.drop(username)

    def _digest(self, username: str, password: str) -> bytes:
        name = username.encode()
        return hmac.digest(self._key, len(name).to_bytes(4, "big") + name + password.encode(), "sha256")

    async def _remembered(self, digest: bytes, username: str) -> User | None:
        right = self._right.get(digest)
        now = self._clock.monotonic()
        if right is None or now - right[1] > REMEMBERED:
            return None
        row = self._rows.get(username)
        if row is not None and now - row[1] <= BELIEVED:
            user: User | None = row[0]
        else:
            user = await self._find_user(username)
            if user is not None:
                self._rows.put(username, (user, now))
        return user if user is not None and hmac.compare_digest(user.password_hash, right[0]) else None

    async def _checked(self, digest: bytes, username: str, password: str) -> User | None:
        checking = self._checking.get(digest)
        if checking is None:
            checking = asyncio.ensure_future(self._verify(digest, username, password))
            self._checking[digest] = checking
            checking.add_done_callback(lambda _: self._checking.pop(digest, None))
        # Shielded, because others may wait for the same check when this caller goes away.
        return await asyncio.shield(checking)

    async def _verify(self, digest: bytes, username: str, password: str) -> User | None:
        user = await self._find_user(username)
        matches = await self._hasher.verify(user.password_hash if user else self._nobody, password)
        if user is None or not matches:
            return None
        now = self._clock.monotonic()
        self._right.put(digest, (user.password_hash, now))
        self._rows.put(username, (user, now))
        return user

    async def _find_user(self, username: str) -> User | None:
        async with self._database.reading() as connection:
            return await users.find_user(connection, username)
