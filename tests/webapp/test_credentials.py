"""Checking passwords: what is cheap, what is not, and how guessing is slowed."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.webapp.conftest import PASSWORD, Serve, basic, code
from tidings.runtime.clock import ManualClock
from tidings.storage.business import users
from tidings.storage.business.users import User
from tidings.storage.database import Database
from webapp.errors import Overloaded, RateLimitExceeded, Unauthenticated
from webapp.users import guessing, passwords
from webapp.users.credentials import BELIEVED, REMEMBERED, Credentials
from webapp.users.guessing import Guessing
from webapp.users.passwords import Hasher


class CountingHasher(Hasher):
    """Counts what argon2 costs."""

    def __init__(self) -> None:
        super().__init__(memory_kib=8)
        self.verified = 0
        self.enough = asyncio.Event()
        self.wanted = 0

    async def verify(self, password_hash: str, password: str) -> bool:
        assert password_hash
        result = await super().verify(password_hash, password)
        self.verified += 1
        if self.verified == self.wanted:
            self.enough.set()
        return result


class Checks:
    """One user, `admin` with the password `PASSWORD`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = ManualClock()
        self.hasher = CountingHasher()
        self.guessing = Guessing(self.clock)
        self.credentials = Credentials(database, self.hasher, self.guessing, clock=self.clock)

    async def start(self) -> None:
        await self.credentials.start()
        user = User("admin", "15550000000", users.ADMIN, await self.hasher.hash(PASSWORD), False, 0)
        async with self.database.transaction() as connection:
            await users.add_user_if_missing(connection, user)

    async def right(self, address: str = "192.0.2.1") -> User:
        return await self.credentials.check("admin", PASSWORD, address)

    async def wrong(self, user: str = "admin", password: str = "wrong", address: str = "192.0.2.9") -> None:
        with pytest.raises(Unauthenticated):
            await self.credentials.check(user, password, address)


@pytest.fixture
async def checks(database: Database) -> Checks:
    made = Checks(database)
    await made.start()
    return made


async def test_a_right_password_costs_argon2_once_and_then_nothing_for_a_while(checks: Checks) -> None:
    for _ in range(5):
        assert (await checks.right()).username == "admin"
    assert checks.hasher.verified == 1
    checks.clock.advance(REMEMBERED + 1)
    await checks.right()
    assert checks.hasher.verified == 2


async def test_a_wrong_password_costs_argon2_each_time(checks: Checks) -> None:
    for _ in range(3):
        await checks.wrong(address="192.0.2.9")
    assert checks.hasher.verified == 3


async def test_an_unknown_user_costs_what_a_wrong_password_costs(checks: Checks) -> None:
    await checks.wrong(user="nobody")
    assert checks.hasher.verified == 1


async def test_the_same_login_many_times_at_once_is_checked_once(checks: Checks) -> None:
    await asyncio.gather(*(checks.right() for _ in range(50)))
    assert checks.hasher.verified == 1


async def test_a_remembered_password_ends_with_the_hash_it_matched(checks: Checks) -> None:
    user = await checks.right()
    async with checks.database.transaction() as connection:
        assert await users.change_password(connection, user, await checks.hasher.hash("Another-2026!"))
    checks.clock.advance(BELIEVED + 0.1)
    await checks.wrong(password=PASSWORD)


async def test_too_many_waiting_hashes_are_refused_rather_than_queued() -> None:
    hasher = Hasher(threads=1, max_waiting=1, memory_kib=8)
    try:
        results = await asyncio.gather(*(hasher.hash("x") for _ in range(5)), return_exceptions=True)
    finally:
        hasher.close()
    assert [isinstance(result, Overloaded) for result in results] == [False, False, True, True, True]


async def test_a_hash_that_is_none_matches_nothing() -> None:
    hasher = Hasher(memory_kib=8)
    assert not await hasher.verify("nonsense", "x")
    hasher.close()


def test_wrong_passwords_are_answered_later_and_later_and_then_forgotten() -> None:
    clock = ManualClock()
    slowed = Guessing(clock)
    delays = [slowed.failed("admin", "192.0.2.9") for _ in range(12)]
    assert delays == [0, 0, 0, 0.25, 0.5, 1, 2, 4, 5, 5, 5, 5]
    # Neither another address nor another account escapes.
    assert slowed.failed("admin", "192.0.2.10") == 5
    assert slowed.failed("other", "192.0.2.9") == 5
    clock.advance(guessing.MEMORY + 1)
    assert slowed.failed("admin", "192.0.2.9") == 0


def test_an_address_with_many_open_guesses_waits_unless_it_has_logged_in_as_that_user() -> None:
    slowed = Guessing(ManualClock())
    slowed.succeeded("admin", "192.0.2.9")
    slowed.failed("root", "192.0.2.9")
    for _ in range(guessing.MAX_OPEN):
        assert slowed.begin("root", "192.0.2.9")
    assert not slowed.begin("root", "192.0.2.9")
    assert slowed.begin("admin", "192.0.2.9")
    assert slowed.begin("root", "192.0.2.10")
    slowed.end("192.0.2.9")
    slowed.end("192.0.2.9")
    assert slowed.begin("root", "192.0.2.9")


def test_logins_at_the_same_time_are_not_limited_before_there_was_a_wrong_one() -> None:
    slowed = Guessing(ManualClock())
    assert all(slowed.begin("admin", "192.0.2.9") for _ in range(100))


async def test_a_right_password_gets_in_at_once_while_its_address_and_account_are_being_guessed(checks: Checks) -> None:
    await checks.right("192.0.2.9")
    for _ in range(10):
        checks.guessing.failed("admin", "192.0.2.9")
    checks.hasher.wanted = 1 + guessing.MAX_OPEN
    held = [asyncio.create_task(checks.wrong(password=f"wrong {n}")) for n in range(guessing.MAX_OPEN)]
    await checks.hasher.enough.wait()
    with pytest.raises(RateLimitExceeded):
        await checks.credentials.check("root", "x", "192.0.2.9")
    async with asyncio.timeout(1):
        await checks.right("192.0.2.9")
        checks.clock.advance(REMEMBERED + 1)
        await checks.right("192.0.2.9")
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)


@pytest.mark.parametrize("password", ["Abcdef1!", "A1!" + "a" * 61])
def test_the_rule_takes_8_to_64_characters(password: str) -> None:
    assert passwords.weakness(password) is None
    assert passwords.weakness(password[:7]) is not None
    assert passwords.weakness(password + "a" * 60) is not None


async def test_too_many_open_guesses_are_answered_with_429(serve: Serve) -> None:
    api = await serve()
    await api.log_in()

    async def guess() -> httpx.Response:
        return await api.http.post("/v1/users/login", headers=basic("other", "x"))

    assert (await guess()).status_code == 401
    guesses = [asyncio.create_task(guess()) for _ in range(guessing.MAX_OPEN + 1)]
    # The answers to the others are held back.
    [refused], held = await asyncio.wait(guesses, return_when=asyncio.FIRST_COMPLETED)
    answer = refused.result()
    assert code(answer) == (429, 1015)
    assert answer.headers["Retry-After"] == "5"
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
