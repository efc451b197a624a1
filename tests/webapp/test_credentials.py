"""Password checks: cheap ones, expensive ones, and how guessing is slowed."""

from __future__ import annotations

import asyncio
import dataclasses

import httpx
import pytest

from tests.manual_clock import ManualClock
from tests.webapp.conftest import PASSWORD, Serve, Served, basic, code
from tidings.secrets.api_key import ApiKey
from tidings.storage.business import users
from tidings.storage.business.users import User
from tidings.storage.database import Database
from webapp.api.users.credentials import Credentials
from webapp.api.users.guessing import Guessing
from webapp.api.users.passwords import Hasher
from webapp.auth import password_rule
from webapp.http.errors import Overloaded, RateLimitExceeded, Unauthenticated

# Literals from docs/api.md: a test that reads its limits from the product cannot detect that one was loosened.
BURST = 10  # guesses at once for one user, or from one address
SECONDS = 10  # seconds until one more guess
BURST_AT_A_WEBAPP = 3  # guesses at once of all unauthenticated clients, at one Webapp
WRONG_KEYS = 30  # wrong API keys at once from one address
REMEMBERED = 300.0  # seconds for which a checked password is not hashed again
ROW_CACHED_SECONDS = 1.0  # seconds for which a user's row is not read again


class CountingHasher(Hasher):
    """Hasher that counts the runs of argon2."""

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
    """Checks with one user, `admin` with the password `PASSWORD`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = ManualClock()
        self.hasher = CountingHasher()
        self.guessing = Guessing(database, self.clock)
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


async def test_a_correct_password_is_hashed_once_and_then_cached(checks: Checks) -> None:
    for _ in range(5):
        assert (await checks.right()).username == "admin"
    assert checks.hasher.verified == 1
    checks.clock.advance(REMEMBERED + 1)
    await checks.right()
    assert checks.hasher.verified == 2


async def test_repeated_logins_renew_the_password_cache(checks: Checks) -> None:
    for _ in range(5):
        await checks.right()
        checks.clock.advance(REMEMBERED - 1)
    assert checks.hasher.verified == 1


async def test_a_new_wrong_password_is_hashed_and_a_repeated_one_is_not(checks: Checks) -> None:
    for number in range(2):
        await checks.wrong(password=f"wrong {number}")
    assert checks.hasher.verified == 2
    for _ in range(50):
        await checks.wrong(password="wrong 1")
    assert checks.hasher.verified == 2
    await checks.wrong(password="wrong 1", address="192.0.2.10")
    assert checks.hasher.verified == 3, "what one address tried says nothing to another"


async def test_a_formerly_wrong_password_works_after_a_change_to_it(checks: Checks) -> None:
    await checks.wrong(password="Another-2026!")
    user = await checks.right()
    async with checks.database.transaction() as connection:
        new = dataclasses.replace(user, password_hash=await checks.hasher.hash("Another-2026!"))
        assert await users.replace(connection, user, new)
    checks.clock.advance(ROW_CACHED_SECONDS + 0.1)
    assert (await checks.credentials.check("admin", "Another-2026!", "192.0.2.9")).username == "admin"


async def test_an_unknown_user_costs_one_hash_like_a_wrong_password(checks: Checks) -> None:
    for _ in range(50):
        await checks.wrong(user="nobody")
    assert checks.hasher.verified == 1


async def test_concurrent_identical_logins_are_hashed_once(checks: Checks) -> None:
    await asyncio.gather(*(checks.right() for _ in range(50)))
    assert checks.hasher.verified == 1


async def test_a_cached_password_becomes_invalid_with_its_hash(checks: Checks) -> None:
    user = await checks.right()
    async with checks.database.transaction() as connection:
        new = dataclasses.replace(user, password_hash=await checks.hasher.hash("Another-2026!"))
        assert await users.replace(connection, user, new)
    checks.clock.advance(ROW_CACHED_SECONDS + 0.1)
    await checks.wrong(password=PASSWORD)


async def test_hashes_beyond_the_waiting_limit_are_refused() -> None:
    hasher = Hasher(threads=1, max_waiting=1, memory_kib=8)
    try:
        results = await asyncio.gather(*(hasher.hash("x") for _ in range(5)), return_exceptions=True)
    finally:
        hasher.close()
    assert [isinstance(result, Overloaded) for result in results] == [False, False, True, True, True]


async def test_a_malformed_hash_matches_no_password() -> None:
    hasher = Hasher(memory_kib=8)
    assert not await hasher.verify("nonsense", "x")
    hasher.close()


async def test_a_client_that_logs_in_before_every_request_is_not_limited(checks: Checks) -> None:
    await asyncio.gather(*(checks.right() for _ in range(500)))
    # A client that still uses an old password is not limited either.
    await asyncio.gather(*(checks.wrong(address="192.0.2.1") for _ in range(500)))
    await checks.right()
    assert checks.hasher.verified == 2


async def test_a_recently_correct_password_is_recognised_without_a_check(checks: Checks) -> None:
    def recognises(user: str, password: str) -> bool:
        return checks.credentials.recognises(basic(user, password)["Authorization"].encode())

    assert not recognises("admin", PASSWORD)
    await checks.right()
    await checks.wrong(address="192.0.2.1")
    assert recognises("admin", PASSWORD)
    assert not recognises("admin", "wrong")
    assert not recognises("nobody", PASSWORD)
    assert not checks.credentials.recognises(b"Bearer x")
    checks.clock.advance(REMEMBERED + 1)
    assert not recognises("admin", PASSWORD)


async def test_concurrent_logins_from_many_addresses_with_one_password_cost_one_hash(checks: Checks) -> None:
    await asyncio.gather(*(checks.right(f"192.0.2.{number}") for number in range(100)))
    assert checks.hasher.verified == 1


async def test_guesses_are_counted_before_they_are_hashed(checks: Checks) -> None:
    async def guess(number: int) -> Exception:
        with pytest.raises((Unauthenticated, RateLimitExceeded)) as caught:
            await checks.credentials.check("admin", f"wrong {number}", f"192.0.2.{number % 50}")
        return caught.value

    raised = await asyncio.gather(*(guess(number) for number in range(200)))
    hashed = sum(isinstance(error, Unauthenticated) for error in raised)
    assert hashed == checks.hasher.verified <= BURST_AT_A_WEBAPP
    assert all(error.retry_after >= 1 for error in raised if isinstance(error, RateLimitExceeded))


async def test_a_login_that_shares_a_refused_check_is_limited_by_its_own_address(checks: Checks) -> None:
    for number in range(BURST):
        await Guessing(checks.database, checks.clock).admit(f"user {number}", "192.0.2.9")
    refused = asyncio.create_task(checks.credentials.check("admin", PASSWORD, "192.0.2.9"))
    joined = asyncio.create_task(checks.right("192.0.2.10"))
    assert (await joined).username == "admin"
    with pytest.raises(RateLimitExceeded):
        await refused


@pytest.mark.parametrize("password", ["Abcdef1!", "A1!" + "a" * 61])
def test_the_password_rule_accepts_8_to_64_characters(password: str) -> None:
    assert password_rule.weakness(password) is None
    assert password_rule.weakness(password[:7]) is not None
    assert password_rule.weakness(password + "a" * 60) is not None


async def test_too_many_guesses_get_429_and_the_administrator_can_still_log_in(api: Served) -> None:
    responses = [
        await api.http.post("/v1/users/login", headers=basic("other", f"x{number}")) for number in range(BURST + 1)
    ]
    assert code(responses[0]) == (401, 1005)
    assert code(responses[-1]) == (429, 1015)
    assert 1 <= int(responses[-1].headers["Retry-After"]) <= SECONDS
    assert (await api.http.post("/v1/users/login", headers=basic("admin", PASSWORD))).status_code == 200
    assert code(await api.http.post("/v1/users/login", headers=basic("admin", "x"))) == (401, 1005)


async def test_wrong_api_keys_are_limited_per_address_and_the_right_key_still_works(serve: Serve) -> None:
    key = "a key of the tests"
    api = await serve(api_key=ApiKey(key))

    async def call(client: httpx.AsyncClient, key: str) -> httpx.Response:
        return await client.get("/v1/health", headers={"Authorization": f"Apikey {key}"})

    def at(address: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(api.parts.app, client=(address, 1))
        return httpx.AsyncClient(base_url="http://127.0.0.1", transport=transport)

    async with at("192.0.2.1") as monitor, at("192.0.2.2") as thief:
        assert (await call(monitor, key)).status_code == 200
        for client in (monitor, thief):
            for number in range(WRONG_KEYS):
                assert code(await call(client, f"guess {number}")) == (401, 1005)
            assert code(await call(client, "another guess")) == (429, 1015)
        assert (await call(monitor, key)).status_code == 200
        assert code(await call(thief, key)) == (429, 1015)
