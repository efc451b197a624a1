"""Presence over a Redis or Valkey with Sentinels: devices stay attached and are found during a failover of the
master."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from harness import polling
from harness.redis_server import RedisServer, SentinelledRedis
from tests.cluster.conftest import TIMEOUT, StartNode
from tests.cluster.test_processes import RATE, READERS, SENDERS, StartLoad, start_load

__all__ = ["start_load"]


@pytest.fixture(params=["redis", "valkey"])
def sentinelled(request: pytest.FixtureRequest) -> Iterator[SentinelledRedis]:
    servers = SentinelledRedis(valkey=request.param == "valkey")
    servers.start()
    yield servers
    servers.remove()


def claimed(server: RedisServer) -> int:
    """Return how many numbers have a claim on this server."""
    with server.client() as client:
        return sum(1 for _ in client.scan_iter("tidings:at:*"))


@pytest.mark.parametrize("end", ["killed", "paused"])
async def test_presence_survives_a_failover(
    sentinelled: SentinelledRedis, start_node: StartNode, start_load: StartLoad, end: str
) -> None:
    nodes = [await start_node(sentinelled.url) for _ in range(2)]
    load = await start_load(*nodes)
    await load.reach(RATE)
    former = sentinelled.master
    former.kill9() if end == "killed" else former.pause()
    await asyncio.to_thread(sentinelled.wait_for_fail_over, former)
    heir = sentinelled.master
    for node in nodes:
        await node.becomes(redis="ok", nodes=2)
    await polling.until(lambda: claimed(heir) == len(SENDERS + READERS), seconds=TIMEOUT)
    former.start() if end == "killed" else former.resume()
    # The former master follows the new one, and none of the nodes stays with it.
    await asyncio.to_thread(sentinelled.wait_until_complete)
    for node in nodes:
        await node.becomes(redis="ok", nodes=2)
    await load.reach(RATE)
    await load.end()
    # No device had to log in again.
    assert not any(each.closings for each in load.crowd.devices.values())


async def test_claims_missing_on_the_new_master_are_repeated_at_once(
    sentinelled: SentinelledRedis, start_node: StartNode, start_load: StartLoad
) -> None:
    nodes = [await start_node(sentinelled.url) for _ in range(2)]
    load = await start_load(*nodes)
    former = sentinelled.master
    (heir,) = (server for server in sentinelled.servers if server is not former)
    with heir.client() as replica:
        # As if the claims had not been replicated in time.
        replica.config_set("replica-read-only", "no")
        keys = list(replica.scan_iter("tidings:at:*"))
        assert replica.delete(*keys) == len(SENDERS + READERS)
    await asyncio.to_thread(sentinelled.fail_over)
    await asyncio.to_thread(sentinelled.wait_for_fail_over, former)
    await polling.until(lambda: claimed(heir) == len(SENDERS + READERS), seconds=TIMEOUT)
    await load.reach(RATE)
    await load.end()
