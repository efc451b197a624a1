"""A Coreapp that reaches the database, but no Webapp reaches: another one takes its shards under load."""

from __future__ import annotations

import asyncio
import collections
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness import polling
from harness.client import Business
from harness.cluster import Cluster, ProcessCounts
from harness.http_connection import NoResponse
from harness.mariadb import MariaDB
from harness.proxy import Proxy
from tests.system.webhook import Webhook, listening
from tidings.wire.addresses import shard_of

pytestmark = pytest.mark.whole_system

# Duration of the cut in seconds, and number of messages offered during it.
CUT_SECONDS, OFFERED = 14.0, 497
# Seconds from the cut until the shards have moved, and messages that are not accepted. On a busy machine the move may
# take longer by `SLOWER` times the slowest response before the cut, in the same run, and each second costs a second's
# messages.
MOVE_SECONDS, REFUSED, SLOWER = 8.0, 50, 3.0
PACE = {"TIDINGS_ROBOTS_PER_KIND": "8", "TIDINGS_MESSAGES_RATE": "10000", "TIDINGS_MESSAGES_BURST": "10000"}
NUMBERS = [f"1555011{n:04}" for n in range(8)]


@pytest.fixture
async def webhook() -> AsyncIterator[tuple[Webhook, str]]:
    async with listening() as found:
        yield found


class Offer:
    """Load at a fixed rate, with each message sent once. `statuses` counts the responses; 0 stands for none."""

    def __init__(self, business: Business) -> None:
        self._business = business
        self._numbers = itertools.cycle(NUMBERS)
        self.accepted: list[str] = []
        self.statuses: collections.Counter[int] = collections.Counter()
        self.refusals: collections.Counter[str] = collections.Counter()
        self.slowest = 0.0  # seconds of the slowest response

    async def run(self, count: int, seconds: float) -> None:
        """Send `count` messages within `seconds`. Returns after the last response."""
        loop = asyncio.get_running_loop()
        began, tasks = loop.time(), []
        for n in range(count):
            await asyncio.sleep(began + n * seconds / count - loop.time())
            tasks.append(asyncio.create_task(self._post()))
        await asyncio.gather(*tasks)

    async def _post(self) -> None:
        message = {"to": next(self._numbers), "type": "text", "text": {"body": "hello"}}
        response: Any
        began = asyncio.get_running_loop().time()
        try:
            status, response = await self._business.call("POST", "/v1/messages", message)
        except NoResponse:
            status, response = 0, {}
        self.slowest = max(self.slowest, asyncio.get_running_loop().time() - began)
        self.statuses[status] += 1
        if status == 201:
            self.accepted.append(response["messages"][0]["id"])
        else:
            self.refusals[f"{status}/{response['errors'][0]['code']}"] += 1


async def test_shards_of_a_coreapp_that_no_webapp_reaches_move_under_load(
    tmp_path: Path, installation_mariadb: MariaDB, webhook: tuple[Webhook, str]
) -> None:
    """Packets between both Webapps and one of two Coreapps are lost for 14 s."""
    _, url = webhook
    shape = ProcessCounts(webapps=2, coreapps=2, networks=1, shards=4)
    async with Cluster(tmp_path, installation_mariadb, None, PACE, shape=shape) as cluster:
        way = await _add_way(cluster, "coreapp")
        try:
            await cluster.start()
            await cluster.wait_for_owners({"coreapp": 2, "coreapp2": 2}, seconds=90)
            business = await cluster.business()
            await business.set_webhook(url)
            assert {shard_of(number, 4) for number in NUMBERS} == {0, 1, 2, 3}
            await business.check_contacts(NUMBERS)
            offer = Offer(business)
            await offer.run(40, 2.0)
            before, slack = len(offer.accepted), SLOWER * offer.slowest
            way.shut()
            loop = asyncio.get_running_loop()
            asyncio.get_running_loop().call_later(CUT_SECONDS, way.open)
            cut, moving = loop.time(), asyncio.create_task(cluster.wait_for_owners({"coreapp2": 4}, seconds=60))
            moving.add_done_callback(lambda _: took.append(loop.time() - cut))
            took: list[float] = []
            offer.statuses.clear()
            await offer.run(OFFERED, CUT_SECONDS)
            refused = OFFERED - (len(offer.accepted) - before)
            print(f"{CUT_SECONDS:.0f} s cut: {refused} of {OFFERED} not accepted, {dict(offer.refusals)}")
            await moving
            print(f"the shards had moved after {took[0]:.1f} s")
            await cluster.wait_for_owners({"coreapp": 2, "coreapp2": 2}, seconds=90)
            await offer.run(40, 2.0)
        finally:
            await way.stop()
        assert 5.0 < took[0] <= MOVE_SECONDS + slack
        # 125 without the reports of Webapps. Messages in flight at the start of the cut have an unknown outcome.
        assert refused <= REFUSED + slack * OFFERED / CUT_SECONDS
        assert set(offer.statuses) <= {201, 500, 503}
        assert {refusal for refusal in offer.refusals if refusal.startswith("500")} <= {"500/1014"}
        accepted = set(offer.accepted)
        assert len(accepted) == len(offer.accepted)
        await polling.until(lambda: accepted <= {shown.message_id for shown in cluster.list_shown()}, seconds=60)
        shown = collections.Counter(entry.message_id for entry in cluster.list_shown())
        assert set(shown.values()) == {1}, "nobody sees a message twice"


async def _add_way(cluster: Cluster, name: str) -> Proxy:
    """Put a proxy between the Webapps and a Coreapp, which advertises the proxy's address."""
    environment = cluster.processes[name].environment
    port = int(environment["TIDINGS_COREAPP_ADDRESS"].rpartition(":")[2])
    environment["TIDINGS_COREAPP_ADVERTISED_HOST"] = "127.0.0.2"
    way = Proxy("127.0.0.1", port)
    way.address = ("127.0.0.2", port)
    await way.start()
    return way
