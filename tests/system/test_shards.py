"""Four shards on two Coreapps, real processes: together they do what one could do alone, and each replaces the
other."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness import polling
from harness.client import Business
from harness.installation import Installation
from harness.mariadb import MariaDB
from tests.system import test_groups
from tests.system.webhook import Webhook, listening
from tidings.wire.addresses import shard_of

pytestmark = pytest.mark.whole_system

RATE = 20  # messages per second
PACE = {"TIDINGS_HEARTBEAT_SECONDS": "0.5", "TIDINGS_LEASE_SECONDS": "2"}


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    """Installation that is not started; on SQLite."""
    environment = {"TIDINGS_ROBOTS_PER_KIND": "8", **PACE}
    async with Installation(tmp_path, None, environment, shards=4, coreapps=2) as prepared:
        yield prepared


@pytest.fixture
async def on_mariadb(tmp_path: Path, installation_mariadb: MariaDB) -> AsyncIterator[Installation]:
    """Installation on a server, which ends the transaction of a process that is paused in the middle of it."""
    environment = {"TIDINGS_ROBOTS_PER_KIND": "8", **PACE}
    async with Installation(tmp_path, installation_mariadb, environment, shards=4, coreapps=2) as prepared:
        yield prepared


@pytest.fixture
async def webhook() -> AsyncIterator[tuple[Webhook, str]]:
    async with listening() as found:
        yield found


async def test_a_group_spans_participants_of_every_shard(
    installation: Installation, webhook: tuple[Webhook, str], tmp_path: Path
) -> None:
    starting = asyncio.create_task(
        test_groups.test_a_group_is_created_joined_used_and_left(installation, webhook, tmp_path)
    )
    await polling.until(lambda: installation.processes["webapp"].pid is not None)
    await installation.wait_for_owners({"coreapp": 2, "coreapp2": 2})
    await starting


@dataclasses.dataclass(frozen=True)
class Acceptance:
    """Response to one message."""

    id: str
    started: float  # loop time in seconds
    took: float  # seconds


class Stream:
    """Stream of messages to recipients of every shard, one after the other, each of them accepted in the end."""

    def __init__(self, business: Business, numbers: list[str]) -> None:
        self._business = business
        self._numbers = itertools.cycle(numbers)
        self._tasks: set[asyncio.Task[None]] = set()
        self.acceptances: list[Acceptance] = []
        # Number of 503 responses, after which nothing was done.
        self.put_off = 0

    async def __aenter__(self) -> Stream:
        self._sending = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)
        await asyncio.gather(*self._tasks)

    async def _send_all(self) -> None:
        while True:
            task = asyncio.create_task(self._send(next(self._numbers)))
            self._tasks.add(task)
            await asyncio.sleep(1 / RATE)

    async def _send(self, number: str) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        message = {"to": number, "type": "text", "text": {"body": "hello"}}
        while True:
            status, response = await self._business.call("POST", "/v1/messages", message)
            if status == 201:
                break
            # Repeated requests may exceed the rate limit.
            assert status in (503, 429), response
            self.put_off += status == 503
            await asyncio.sleep(0.2)
        self.acceptances.append(Acceptance(response["messages"][0]["id"], started, loop.time() - started))

    def longest(self, since: float) -> float:
        """Return the longest response time in seconds of the requests sent since then."""
        return max((response.took for response in self.acceptances if response.started >= since - 1.0), default=0.0)


async def test_shards_are_handed_over_and_taken_over_under_load_with_one_owner_each(
    on_mariadb: Installation, webhook: tuple[Webhook, str]
) -> None:
    """A planned stop, a kill and a pause, while messages go to every shard."""
    installation = on_mariadb
    _, url = webhook
    await installation.start()
    await installation.wait_for_owners({"coreapp": 2, "coreapp2": 2})
    business = await installation.business()
    await business.set_webhook(url)
    numbers = [f"1555011{n:04}" for n in range(8)]
    assert {shard_of(number, 4) for number in numbers} == {0, 1, 2, 3}
    await business.check_contacts(numbers)
    second = installation.processes["coreapp2"]
    loop, took = asyncio.get_running_loop(), {}
    async with Stream(business, numbers) as stream:

        async def settled() -> float:
            await installation.wait_for_owners({"coreapp": 2, "coreapp2": 2})
            await asyncio.sleep(1.0)
            return loop.time()

        began = await settled()
        await second.stop()
        await installation.wait_for_owners({"coreapp": 4}, seconds=10)
        await asyncio.sleep(1.0)
        took["handed over"] = stream.longest(began)
        await second.start()
        began = await settled()
        await second.kill9()
        await installation.wait_for_owners({"coreapp": 4})
        await asyncio.sleep(1.0)
        took["taken over"] = stream.longest(began)
        await second.start()
        began = await settled()
        second.pause()
        await installation.wait_for_owners({"coreapp": 4})
        await asyncio.sleep(1.0)
        second.resume()
        await settled()
        took["stood still"] = stream.longest(began)
    late = second.log_path.read_text().count("lease.late_commit")
    print({name: round(seconds, 2) for name, seconds in took.items()}, f"503: {stream.put_off}, late commits: {late}")
    assert took["handed over"] < 3
    assert took["taken over"] < 6
    ids = {response.id for response in stream.acceptances}
    assert len(ids) == len(stream.acceptances)
    await polling.until(lambda: ids <= {shown.message_id for shown in installation.list_shown()}, seconds=60)
    shown = collections.Counter(entry.message_id for entry in installation.list_shown() if entry.message_id in ids)
    assert set(shown.values()) == {1}, "nobody sees a message twice"
    assert late > 0, "it wrote when it woke up, and was refused"
    assert no_two_owners(installation) > 8


def no_two_owners(installation: Installation) -> int:
    """Check the log of leases, which has a row for each, and return their number."""
    rows = installation.read_rows("business", "SELECT shard, epoch, claimed_at, ended_at FROM shard_leases")
    leases = sorted(tuple(row) for row in rows)
    for (shard, epoch, _, ended), (next_shard, next_epoch, claimed, _) in itertools.pairwise(leases):
        if shard == next_shard:
            assert epoch < next_epoch
            assert 0 < ended <= claimed, (shard, epoch)
    return len(leases)
