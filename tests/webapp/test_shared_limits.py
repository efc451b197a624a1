"""Rate limits hold for the installation as a whole, however the load is spread over the Webapps."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from harness import metrics
from tests.manual_clock import ManualClock
from tidings.changes.watch import Watch
from tidings.storage.business import rate_limits
from tidings.storage.business.rate_limits import TokenRequest, grant
from tidings.storage.database import Database
from webapp.membership import WebappMembership
from webapp.rate_limits.shared_limits import SharedLimit
from webapp.rate_limits.token_blocks import TokenBlocks

RATE = BURST = 80
STEP = 0.005  # seconds


class Fleet:
    """Webapps that share one bucket in a real database, on a clock that the test moves."""

    def __init__(self, database: Database, count: int, *, rate: float = RATE, burst: float = BURST) -> None:
        self.clock = ManualClock()
        self.chance = random.Random(1)
        self.token_blocks = [
            TokenBlocks(database, self.clock, database_now=lambda: int(self.clock.now() * 1_000_000))
            for _ in range(count)
        ]
        self.shares: list[SharedLimit] = []
        for blocks in self.token_blocks:
            share = SharedLimit("messages", rate, burst, clock=self.clock, wake=blocks.wake, chance=self.chance.uniform)
            blocks.serve(share)
            blocks.set_members(count)
            self.shares.append(share)
        self.accepted = [0] * count
        self.refused = [0] * count

    async def request(self, webapp: int) -> None:
        share = self.shares[webapp]
        if share.is_short():
            waiting = asyncio.create_task(share.replenished())
            await asyncio.sleep(0)
            await self.token_blocks[webapp].run_once()
            await waiting
        if share.take() == 0:
            self.accepted[webapp] += 1
        else:
            self.refused[webapp] += 1

    async def load(self, rates: Sequence[float], seconds: float) -> None:
        """Send requests at random times.

        rates: requests per second at each Webapp.
        """
        for _ in range(round(seconds / STEP)):
            for webapp, rate in enumerate(rates):
                count = int(rate * STEP) + (self.chance.random() < rate * STEP % 1)
                for _ in range(count):
                    await self.request(webapp)
                if self.shares[webapp].due_at() <= self.clock.monotonic():
                    await self.token_blocks[webapp].run_once()
            self.clock.advance(STEP)

    def forget(self) -> None:
        self.accepted = [0] * len(self.accepted)
        self.refused = [0] * len(self.refused)


@pytest.fixture
async def database(database_factory: Callable[[str], Awaitable[Database]]) -> Database:
    return await database_factory("business")


@pytest.mark.parametrize("database_engine", ["sqlite", "mariadb"])
@pytest.mark.parametrize(
    "rates",
    [[200], [100, 100], [200, 0], [200, 20], [50] * 4, [0, 200, 0, 0], [200, 60, 30, 10]],
    ids=lambda rates: "-".join(map(str, rates)),
)
async def test_the_installation_accepts_80_per_second_for_any_load_distribution(
    database: Database, database_engine: str, rates: list[float]
) -> None:
    fleet = Fleet(database, len(rates))
    await fleet.load(rates, 3)
    assert sum(fleet.accepted) <= BURST + 3 * RATE, "whatever is held in advance was taken of the bucket"
    fleet.forget()
    taken = metrics.value("tidings_api_rate_token_blocks_total", result="ok")
    await fleet.load(rates, 4)
    assert sum(fleet.accepted) == pytest.approx(4 * RATE, rel=0.05)
    busy = sum(rate > 0 for rate in rates)
    if busy == len(rates) > 1:
        assert min(fleet.accepted) > 0, "nobody is starved"
    statements = metrics.value("tidings_api_rate_token_blocks_total", result="ok") - taken
    assert statements <= (busy * 4 * 12 if len(rates) > 1 else 0), "alone, none; else a few a second"


def test_an_idle_webapp_requests_no_tokens_until_a_request_arrives() -> None:
    share = SharedLimit("contacts", 2, 2, clock=ManualClock())
    share.set_members(2)
    assert share.wanted() is None
    assert share.due_at() == math.inf
    share.take()
    assert share.due_at() < math.inf
    assert share.wanted() is not None


async def test_no_request_below_the_limit_is_refused(database: Database) -> None:
    fleet = Fleet(database, 4)
    await fleet.load([30, 20, 10, 2], 5)
    assert sum(fleet.refused) == 0


async def test_the_limit_holds_while_load_moves_between_webapps(database: Database) -> None:
    fleet = Fleet(database, 2)
    await fleet.load([400, 0], 1.5)
    fleet.forget()
    for rates in ([0, 400], [400, 0], [0, 400], [200, 200]):
        await fleet.load(rates, 1)
    assert sum(fleet.accepted) == pytest.approx(4 * RATE, rel=0.05)


async def test_a_burst_at_one_of_several_webapps_is_accepted(database: Database) -> None:
    fleet = Fleet(database, 4)
    await fleet.load([0] * 4, 0.5)
    for _ in range(200):
        await fleet.request(2)
    # The other three Webapps hold two permits each for their own clients.
    assert BURST - 3 * 2 <= fleet.accepted[2] <= BURST


async def test_a_limit_of_two_per_second_holds(database: Database) -> None:
    fleet = Fleet(database, 2, rate=2, burst=2)
    await fleet.load([20, 20], 2)
    fleet.forget()
    await fleet.load([20, 20], 10)
    assert sum(fleet.accepted) == pytest.approx(20, abs=1)


async def test_a_single_webapp_uses_only_its_local_bucket(database: Database) -> None:
    fleet = Fleet(database, 1, rate=2, burst=3)
    assert [fleet.shares[0].take() for _ in range(4)] == [0, 0, 0, 0.5]
    assert not fleet.shares[0].is_short()
    assert fleet.shares[0].wanted() is None


async def test_during_a_database_outage_each_webapp_keeps_its_share(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(database, 2)
    await fleet.load([300, 30], 8)
    before = list(fleet.accepted)

    async def away(*_: object, **__: object) -> None:
        raise ConnectionError("the database is unreachable")

    fleet.forget()
    with monkeypatch.context() as context:
        context.setattr(rate_limits, "take", away)
        await fleet.load([300, 30], 8)
    assert sum(fleet.accepted) == pytest.approx(8 * RATE, rel=0.15)
    assert fleet.accepted[0] == pytest.approx(before[0] - BURST, rel=0.15)
    fleet.forget()
    await fleet.load([0, 300], 1)
    fleet.forget()
    await fleet.load([0, 300], 4)
    assert sum(fleet.accepted) == pytest.approx(4 * RATE, rel=0.05), "and takes of the bucket when it is back"


async def test_the_last_remaining_webapp_gets_the_whole_bucket(database: Database) -> None:
    fleet = Fleet(database, 2)
    await fleet.load([300, 300], 1)
    fleet.token_blocks[0].set_members(1)
    fleet.forget()
    await fleet.load([300, 0], 2)
    assert fleet.accepted[0] == pytest.approx(2 * RATE, rel=0.1)
    assert not fleet.shares[0].is_short()


def test_a_bucket_grants_its_tokens_and_refills_over_time() -> None:
    wanted = TokenRequest("messages", 100, rate=80, burst=80)
    tokens, full_at = grant(wanted, 0, 1_000_000_000)
    assert tokens == 80
    assert grant(wanted, full_at, 1_000_000_000) == (0, full_at)
    assert grant(wanted, full_at, 1_000_500_000)[0] == 40
    assert grant(wanted, full_at, 1_009_000_000)[0] == 80
    # Whatever value another clock wrote, the bucket is full again after a second.
    _, mended = grant(wanted, 10**18, 1_000_000_000)
    assert mended == 1_001_000_000


async def test_membership_reports_the_number_of_webapps(database: Database) -> None:
    seen: list[list[int]] = [[], []]
    first, second = (WebappMembership(database, f"host:{n}", seen[n].append) for n in range(2))
    watch = Watch(database)
    watch.on_poll(first.poll)
    await first.start()
    await second.start()
    assert seen == [[], [2]], "whoever comes second knows at once"
    await watch.run_once()
    assert seen == [[2], [2]]
    stop = asyncio.Event()
    stop.set()
    await second.run(stop)
    await watch.run_once()
    assert seen[0] == [2, 1]


async def test_a_changed_rate_holds_for_all_webapps(database: Database, database_engine: str) -> None:
    fleet = Fleet(database, 2)
    await fleet.load([200, 200], 3)
    for share in fleet.shares:
        share.set_rate(300, 300)
    await fleet.load([200, 200], 3)
    fleet.forget()
    await fleet.load([200, 200], 4)
    assert sum(fleet.accepted) == pytest.approx(4 * 300, rel=0.05)


async def test_a_changed_rate_keeps_the_tokens_of_a_single_webapp(database: Database) -> None:
    fleet = Fleet(database, 1)
    [share] = fleet.shares
    assert [share.take() for _ in range(81)].count(0) == 80
    share.set_rate(1000, 1000)
    assert share.take() > 0
    fleet.clock.advance(0.5)
    assert [share.take() for _ in range(600)].count(0) == 500
