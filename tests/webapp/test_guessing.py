"""Token buckets of logins: which clients share one, and which are not delayed by others."""

from __future__ import annotations

import logging

import pytest

from tests.manual_clock import ManualClock
from tidings.storage.business import login_buckets, login_origins
from tidings.storage.database import Database
from webapp.api.users.guessing import Guessing
from webapp.api.users.refusals import Refusals
from webapp.http.errors import DatabaseUnavailable, RateLimitExceeded

# Literals from docs/api.md: a test that reads its limits from the product cannot detect that one was loosened.
BURST = 10  # guesses at once for one user, or from one address
SECONDS = 10  # seconds until one more guess
FAMILIAR = 20  # checks at once for a user at an address where that user has logged in before
DAY = 86_400
REMEMBERED = 90 * DAY
LIMIT = 10_000  # familiar addresses that are remembered
LINES = 10  # log lines at once


class Scene:
    """Webapps that share a database and a clock."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = ManualClock()

    def webapp(self) -> Guessing:
        return Guessing(self.database, self.clock)

    async def drain(self, username: str, address: str) -> None:
        """Exhaust the bucket of an account or an address, through as many Webapps as it takes."""
        for _ in range(BURST):
            await self.webapp().admit(username, address)

    async def count(self, guessing: Guessing, username: str, address: str, *, tries: int = 100) -> int:
        """Return how many checks at once are admitted."""
        for number in range(tries):
            try:
                await guessing.admit(username, address)
            except RateLimitExceeded as error:
                self.refusal = error
                return number
        return tries


@pytest.fixture
def scene(database: Database) -> Scene:
    return Scene(database)


async def test_an_account_has_one_bucket_for_all_addresses_and_webapps(scene: Scene) -> None:
    one, other = scene.webapp(), scene.webapp()
    await scene.drain("admin", "192.0.2.1")
    assert await scene.count(other, "admin", "192.0.2.2") == 0
    assert scene.refusal.retry_after == SECONDS
    scene.clock.advance(SECONDS)
    assert await scene.count(one, "admin", "192.0.2.3") == 1
    assert await scene.count(other, "admin", "192.0.2.4") == 0


async def test_an_attempt_consumes_one_token_when_the_outcome_of_its_commit_is_unknown(
    scene: Scene, lost_commit: list[bool]
) -> None:
    lost_commit.append(True)
    with pytest.raises(DatabaseUnavailable):
        await scene.webapp().admit("admin", "192.0.2.1")
    assert not lost_commit
    for _ in range(BURST - 1):
        await scene.webapp().admit("admin", "192.0.2.1")
    assert await scene.count(scene.webapp(), "admin", "192.0.2.1") == 0


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8:0:0:ffff::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
    ],
)
async def test_an_address_has_one_bucket_for_all_accounts_and_webapps(
    scene: Scene, first: str, second: str, shared: bool
) -> None:
    for number in range(BURST):
        await scene.webapp().admit(f"user {number}", first)
    assert await scene.count(scene.webapp(), "another", second, tries=1) == (0 if shared else 1)


async def test_login_attempts_from_unknown_addresses_share_one_rate_limit(scene: Scene) -> None:
    guessing = scene.webapp()
    admitted = 0
    for second in range(60):
        for number in range(50):
            admitted += await scene.count(guessing, f"user {second} {number}", f"192.0.{second}.{number}", tries=1)
        scene.clock.advance(1)
    # 3 at once, then one per 4 s.
    assert 3 < admitted <= 3 + 60 / 4


async def test_refused_attempts_cost_no_database_statement(scene: Scene) -> None:
    one, other = scene.webapp(), scene.webapp()
    await scene.drain("admin", "192.0.2.1")
    for webapp in (one, other):
        assert await scene.count(webapp, "admin", "192.0.2.1") == 0
    await scene.database.close()
    async with scene.database.transaction() as connection:
        await connection.execute(login_buckets.table.delete())
    for _ in range(100):
        for webapp in (one, other):
            with pytest.raises(RateLimitExceeded):
                await webapp.admit("admin", "192.0.2.1")
    async with scene.database.reading() as connection:
        assert (await connection.execute(login_buckets.table.select())).first() is None


async def test_known_origins_are_not_limited_by_attempts_of_unknown_ones(scene: Scene) -> None:
    guessing, other = scene.webapp(), scene.webapp()
    await guessing.admit("admin", "198.51.100.1")
    await guessing.succeeded("admin", "198.51.100.1")
    for number in range(100):
        await scene.count(guessing, "admin", f"192.0.2.{number}", tries=1)
        await scene.count(guessing, f"user {number}", "198.51.100.1", tries=1)
    assert await scene.count(guessing, "admin", "192.0.2.200") == 0
    assert await scene.count(guessing, "admin", "198.51.100.1") == FAMILIAR
    await other.poll()
    assert await scene.count(other, "admin", "198.51.100.1") == FAMILIAR
    assert not other.is_familiar("another", "198.51.100.1")


async def test_known_login_origins_are_kept_for_90_days_across_restarts(scene: Scene) -> None:
    guessing = scene.webapp()
    await guessing.succeeded("admin", "198.51.100.1")
    await guessing.succeeded("admin", "198.51.100.2")
    scene.clock.advance(REMEMBERED - 10)
    await guessing.succeeded("admin", "198.51.100.2")
    scene.clock.advance(20)
    again = scene.webapp()
    await again.poll()
    assert not guessing.is_familiar("admin", "198.51.100.1")
    assert not again.is_familiar("admin", "198.51.100.1")
    assert guessing.is_familiar("admin", "198.51.100.2")
    assert again.is_familiar("admin", "198.51.100.2")


async def test_maintenance_limits_the_login_tables(scene: Scene) -> None:
    guessing = scene.webapp()
    async with scene.database.transaction() as connection:
        now = int(scene.clock.now() * 1000)
        rows = [{"username": "admin", "origin": str(n), "seen_at": now + n} for n in range(LIMIT + 100)]
        await connection.execute(login_origins.table.insert(), rows)
    await scene.count(guessing, "admin", "192.0.2.1")
    scene.clock.advance(BURST * SECONDS + 60)
    await guessing.sweep()
    async with scene.database.reading() as connection:
        assert not (await connection.execute(login_buckets.table.select())).all()
        kept = await login_origins.list_since(connection, 0, limit=2 * LIMIT)
    assert len(kept) == LIMIT
    assert kept[-1].origin == "100"


async def test_a_bucket_written_by_a_wrong_clock_blocks_no_login(scene: Scene) -> None:
    ahead = Scene(scene.database)
    ahead.clock.advance(3600)
    await ahead.drain("admin", "192.0.2.1")
    await scene.drain("admin", "192.0.2.2")
    assert await scene.count(scene.webapp(), "admin", "192.0.2.3") == 0


def test_refused_logins_are_logged_at_a_limited_rate_and_only_with_existing_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    refusals = Refusals(clock)
    for _ in range(1000):
        refusals.note(None, "192.0.2.1", "wrong")
    assert len(caplog.records) == LINES
    assert not hasattr(caplog.records[0], "username")
    clock.advance(1)
    refusals.note("admin", "192.0.2.1", "wrong")
    last = caplog.records[-1]
    assert (last.message, last.username, last.left_out) == ("user.login_refused", "admin", 1000 - LINES)  # type: ignore[attr-defined]
