"""Nodes that are killed, paused, stopped, or lose Redis, under load: every accepted envelope arrives."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from harness import polling
from harness.light_devices import LightDevices, register
from harness.redis_server import RedisCluster, RedisServer
from tests.cluster.conftest import KEY, OPERATOR_KEY, TIMEOUT, NetworkNode, StartNode
from tidings.wire import device

SENDERS = [f"1555020{i:04}" for i in range(4)]
READERS = [f"1555030{i:04}" for i in range(40)]
# Envelopes per second of all senders together.
RATE = 200


class Load:
    """Load from all senders to all readers in round robin, at a rate, until it is ended."""

    def __init__(self, crowd: LightDevices) -> None:
        self.crowd = crowd
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._run())
        self.sent: dict[str, str] = {}

    async def _run(self) -> None:
        loop, count = asyncio.get_running_loop(), 0
        started = loop.time()
        while not self._stop.is_set():
            while count < (loop.time() - started) * RATE:
                to = READERS[count % len(READERS)]
                self.crowd.devices[SENDERS[count % len(SENDERS)]].send(to, f"m{count}")
                self.sent[f"m{count}"] = to
                count += 1
            await asyncio.sleep(0.02)

    async def reach(self, more: int) -> None:
        """Wait until `more` further envelopes are sent."""
        target = len(self.sent) + more
        await self.crowd.until(lambda: len(self.sent) >= target, TIMEOUT)

    def accepted(self) -> int:
        """Return the number of accepted envelopes."""
        return sum(len(self.crowd.devices[number].accepted) for number in SENDERS)

    async def all_attached(self) -> None:
        """Wait until every device is attached to a node."""
        await self.crowd.until(lambda: self.crowd.attached == len(self.crowd.devices))

    async def end(self) -> int:
        """Wait until all sends are accepted and have arrived. Returns the number of envelopes that came more
        than once."""
        self._stop.set()
        await self._task
        devices = self.crowd.devices
        await self.crowd.until(lambda: not sum(devices[number].pending for number in SENDERS), 60.0)
        await self.crowd.until(lambda: all(devices[to].received[id] for id, to in self.sent.items()), 60.0)
        assert not any(devices[number].refused for number in SENDERS)
        assert set().union(*[devices[number].accepted for number in SENDERS]) == set(self.sent)
        return sum(count - 1 for number in READERS for count in devices[number].received.values())


StartLoad = Callable[..., Awaitable[Load]]


@pytest.fixture
async def start_load() -> AsyncIterator[StartLoad]:
    """Function that starts a load: `await start_load(*nodes)`, with senders and readers spread over these nodes."""
    crowds: list[LightDevices] = []

    async def start(*nodes: NetworkNode) -> Load:
        tokens = await register(nodes[0].http, KEY, SENDERS + READERS)
        crowd = LightDevices([node.tcp for node in nodes], tokens)
        crowds.append(crowd)
        await crowd.connect()
        return Load(crowd)

    yield start
    for crowd in crowds:
        await crowd.close()


async def test_killed_nodes_lose_no_envelope(redis: RedisServer, start_node: StartNode, start_load: StartLoad) -> None:
    nodes = [await start_node(redis.url) for _ in range(2)]
    load = await start_load(*nodes)
    for victim in (nodes[1], nodes[0], nodes[1]):
        await load.reach(RATE)
        await victim.process.kill9()
        await load.all_attached()
        await victim.process.start()
        await load.reach(RATE)
        # Devices that reconnect go to it, too.
        for number in READERS[::2]:
            load.crowd.devices[number].close()
    repeated = await load.end()
    print(f"{len(load.sent)} envelopes, {repeated} of them came again")


async def test_a_paused_node_counts_as_dead_and_resumes_when_it_wakes(
    redis: RedisServer, start_node: StartNode, start_load: StartLoad
) -> None:
    nodes = [await start_node(redis.url, TIDINGS_NETWORK_NODE_SILENCE_S="2") for _ in range(2)]
    load = await start_load(*nodes)
    await load.reach(RATE)
    nodes[1].process.pause()
    try:
        await nodes[0].becomes(nodes=1)
        await load.reach(2 * RATE)
    finally:
        nodes[1].process.resume()
    await nodes[0].becomes(nodes=2)
    await load.reach(RATE)
    await load.end()


async def test_redis_unavailable_for_30_seconds_loses_no_envelope(
    redis: RedisServer, start_node: StartNode, start_load: StartLoad
) -> None:
    nodes = [await start_node(redis.url) for _ in range(2)]
    load = await start_load(*nodes)
    await load.reach(RATE)
    for away, back in ((redis.kill9, redis.start), (redis.pause, redis.resume)):
        away()
        try:
            for node in nodes:
                await node.becomes(redis="away")
                assert (await node.health())[0] == 200
                assert (await node.health("/health/ready"))[0] == 503
            before = load.accepted()
            await load.reach(15 * RATE)
            # No envelope waited for Redis.
            assert load.accepted() - before > 10 * RATE
        finally:
            back()
        for node in nodes:
            await node.becomes(redis="ok")
        await load.reach(RATE)
    await load.end()
    assert (await nodes[0].health("/health/ready"))[0] == 200


async def test_a_rolling_restart_of_nodes_closes_device_connections_with_shutdown(
    redis: RedisServer, start_node: StartNode, start_load: StartLoad
) -> None:
    nodes = [await start_node(redis.url) for _ in range(2)]
    load = await start_load(*nodes)
    for node in nodes:
        await load.reach(RATE)
        await node.process.stop()
        await node.process.start()
        await load.all_attached()
    await load.reach(RATE)
    # Envelopes on their way to a device that was just asked to disconnect are delivered again.
    assert await load.end() < len(load.sent) / 50
    closings = {reason for each in load.crowd.devices.values() for reason in each.closings}
    assert closings == {device.SHUTDOWN}


async def test_nodes_find_each_other_through_a_redis_cluster(
    redis_cluster: RedisCluster, start_node: StartNode, start_load: StartLoad
) -> None:
    nodes = [await start_node(redis_cluster.url) for _ in range(3)]
    load = await start_load(*nodes)
    await load.reach(2 * RATE)
    await nodes[2].process.kill9()
    await load.reach(RATE)
    await load.end()
    await nodes[0].becomes(nodes=2)
    url, headers = nodes[0].http + "/v1/announcements", {"Authorization": f"Apikey {OPERATOR_KEY}"}
    async with aiohttp.ClientSession() as http, http.post(url, json={"text": "To all"}, headers=headers) as response:
        said = await response.json()
    assert said == {"devices": len(load.crowd.devices), "nodes": 2}


async def test_workers_share_addresses_and_a_killed_worker_is_restarted(
    redis: RedisServer, start_node: StartNode, start_load: StartLoad
) -> None:
    parent = await start_node(redis.url, TIDINGS_NETWORK_WORKERS="2")
    await parent.becomes(nodes=2)
    load = await start_load(parent)
    await load.reach(RATE)
    workers = parent.workers
    assert len(workers) == 2
    _, loads = await parent.health("/health/load")
    assert {node["node"] for node in loads["nodes"].values()} == {"network-0-0", "network-0-1"}
    os.kill(workers[0].pid, signal.SIGKILL)
    await parent.becomes(nodes=2, redis="ok")
    await load.all_attached()
    await load.reach(RATE)
    await load.end()
    await polling.until(lambda: len(parent.workers) == 2, seconds=TIMEOUT)
