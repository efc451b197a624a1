"""Is this the password of this user? Cheap when that was answered a moment ago, as costly as argon2 otherwise."""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import secrets

from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU
from tidings.storage.business import users
from tidings.storage.business.users import User
from tidings.storage.database import Database
from webapp.errors import RateLimitExceeded, Unauthenticated
from webapp.users import basic
from webapp.users.guessing import Guessing
from webapp.users.passwords import Hasher

# Seconds that an answer is remembered after it was asked for last, and that a user's row is believed, which bounds how
# long a password that was changed through another Webapp still works here.
REMEMBERED = 300.0
BELIEVED = 1.0

_LIMIT = 1_000


@dataclasses.dataclass(frozen=True, slots=True)
class _Answer:
    """matched: whether the password was that of the stored hash; asked_at: seconds of the monotonic clock."""

    matched: bool
    password_hash: str
    asked_at: float


class Credentials:
    """Checks user names and passwords.

    Answers are remembered under a key of this process, bound to the stored hash; that a password is wrong, for the
    address that tried it. So a client that logs in before every request costs neither a hash nor a token, and one that
    was left with an old password does not empty a bucket. Whether the user or the password is wrong makes no
    difference in path or time. The same password at the same time is checked once.
    """

    def __init__(self, database: Database, hasher: Hasher, guessing: Guessing, *, clock: Clock) -> None:
        self._database = database
        self._hasher = hasher
        self._guessing = guessing
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._answers: LRU[bytes, _Answer] = LRU(_LIMIT)
        # Of names that nobody has, too.
        self._rows: LRU[str, tuple[User | None, float]] = LRU(_LIMIT)
        # Each has passed `admit`, or is about to be refused by it.
        self._checking: dict[bytes, asyncio.Future[User | None]] = {}
        # One stranger's hash at a time leaves the other threads to familiar clients.
        self._strangers_turn = asyncio.Semaphore(1)
        self._nobody = ""

    async def start(self) -> None:
        """Make the hash that passwords of unknown users are checked against."""
        self._nobody = await self._hasher.hash(secrets.token_urlsafe(32))

    async def check(self, username: str, password: str, address: str) -> User:
        """The user of this name and password.

        Raises `Unauthenticated`, `RateLimitExceeded` when too much is tried, `Overloaded`.
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
        """Is this value of `Authorization` a name and a password that were right a moment ago?"""
        found = basic.parse(header)
        if found is None:
            return False
        answer, row = self._answers.get(self._digest(*found)), self._rows.get(found[0])
        if answer is None or row is None or row[0] is None:
            return False
        is_recent = self._clock.monotonic() - answer.asked_at <= REMEMBERED
        return answer.matched and is_recent and hmac.compare_digest(row[0].password_hash, answer.password_hash)

    def learn(self, user: User, password: str) -> None:
        """This password was just given to a user here."""
        now = self._clock.monotonic()
        self._rows.put(user.username, (user, now))
        self._answers.put(self._digest(user.username, password), _Answer(True, user.password_hash, now))

    def forget(self, username: str) -> None:
        """The user was changed here: read it again."""
        self._rows.drop(username)

    def is_known(self, username: str) -> bool:
        """Is there, as far as was seen here lately, a user of this name?"""
        row = self._rows.get(username)
        return row is not None and row[0] is not None

    def _digest(self, *parts: str) -> bytes:
        framed = b"".join(len(raw).to_bytes(4, "big") + raw for raw in (part.encode() for part in parts))
        return hmac.digest(self._key, framed, "sha256")

    async def _remembered(self, right: bytes, wrong: bytes, username: str) -> User | None:
        """The user when the password was right a moment ago. Raises `Unauthenticated` when it was wrong."""
        now = self._clock.monotonic()
        for digest in (right, wrong):
            answer = self._answers.get(digest)
            if answer is None or now - answer.asked_at > REMEMBERED:
                continue
            user = await self._row(username)
            if not hmac.compare_digest(user.password_hash if user else "", answer.password_hash):
                continue
            self._answers.put(digest, dataclasses.replace(answer, asked_at=now))
            if answer.matched:
                return user
            raise Unauthenticated("wrong user name or password", scheme="Basic")
        return None

    async def _row(self, username: str) -> User | None:
        now = self._clock.monotonic()
        row = self._rows.get(username)
        if row is not None and now - row[1] <= BELIEVED:
            return row[0]
        user = await self._find_user(username)
        self._rows.put(username, (user, now))
        return user

    async def _check_once(self, right: bytes, wrong: bytes, username: str, password: str, address: str) -> User | None:
        checking = self._checking.get(right)
        if checking is not None:
            try:
                # Shielded, because others may wait for the same check when this caller goes away.
                return await asyncio.shield(checking)
            except RateLimitExceeded:
                # Of another address, perhaps; this one's buckets are its own.
                await self._guessing.admit(username, address)
                return await self._verify(right, wrong, username, password, address)
        checking = asyncio.ensure_future(self._admit_and_verify(right, wrong, username, password, address))
        self._checking[right] = checking

        def forget(done: asyncio.Future[User | None]) -> None:
            del self._checking[right]
            # Looked at, for the case that everybody who waited has gone away.
            done.cancelled() or done.exception()

        checking.add_done_callback(forget)
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
            matches = await self._hasher.verify(stored or self._nobody, password)
        else:
            async with self._strangers_turn:
                matches = await self._hasher.verify(stored or self._nobody, password)
        now = self._clock.monotonic()
        self._rows.put(username, (user, now))
        found = user is not None and matches
        self._answers.put(right if found else wrong, _Answer(found, stored, now))
        return user if found else None

    async def _find_user(self, username: str) -> User | None:
        async with self._database.reading() as connection:
            return await users.find_user(connection, username)
