"""Workers of one `tidings network`: shared memory, each with its own name and ports; planned and unplanned ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from harness import polling
from harness.light_devices import LightDevices, register
from harness.mariadb import free_port
from harness.redis_server import RedisServer
from tests.cluster.conftest import KEY, TIMEOUT, StartNode
from tidings.wire import device

MIB = 1024 * 1024


def memory(pid: int | None) -> Any:
    """Return the memory of a process in bytes: its own (USS), and with its part of what it shares (PSS)."""
    return psutil.Process(pid).memory_full_info()


def is_running(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


async def test_a_worker_takes_less_than_half_of_the_memory_of_a_node_alone(
    redis: RedisServer, start_node: StartNode
) -> None:
    alone = await start_node(redis.url)
    parent = await start_node(redis.url, TIDINGS_NETWORK_WORKERS="4")
    await parent.becomes(nodes=5)
    node = memory(alone.process.pid).pss
    workers = [memory(worker.pid) for worker in parent.workers]
    print(f"MiB: node {node // MIB}, workers {[(each.pss // MIB, each.uss // MIB) for each in workers]} (PSS, USS)")
    assert len(workers) == 4
    # What a further worker takes, and what each takes with its part of the shared memory.
    assert max(each.uss for each in workers) < 0.5 * node
    assert max(each.pss for each in workers) < 0.6 * node


async def test_each_worker_has_its_own_name_ports_and_record(
    redis: RedisServer, start_node: StartNode, tmp_path: Path
) -> None:
    http, metrics = free_port(), free_port()
    parent = await start_node(
        redis.url,
        TIDINGS_NETWORK_WORKERS="2",
        TIDINGS_NETWORK_WORKER_PORT=str(http),
        TIDINGS_NETWORK_METRICS_ADDRESS=f"127.0.0.1:{metrics}",
    )
    await parent.becomes(nodes=2)
    pids = {worker.pid for worker in parent.workers}
    records = [json.loads(path.read_text()) for path in (tmp_path / "processes").glob("network-*.json")]
    assert {record["pid"] for record in records} == pids | {parent.process.pid}
    names = {record["pid"]: record["variables"]["TIDINGS_NETWORK_NODE"] for record in records}
    assert {names[pid] for pid in pids} == {"network-0-0", "network-0-1"}
    # The key is no plain variable of any of them.
    assert all("TIDINGS_REGISTRATION_KEY" in record["withheld"] for record in records)
    seen = {}
    async with aiohttp.ClientSession() as session:
        for index in range(2):
            async with session.get(f"http://127.0.0.1:{http + index}/health") as response:
                seen[(await response.json())["node"].rpartition(".")[0]] = index
            async with session.get(f"http://127.0.0.1:{metrics + index}/metrics") as response:
                assert "tidings_network_connections 0.0" in await response.text()
    assert seen == {"network-0-0": 0, "network-0-1": 1}


async def test_a_planned_stop_drains_every_worker_and_leaves_no_process(
    redis: RedisServer, start_node: StartNode
) -> None:
    parent = await start_node(redis.url, TIDINGS_NETWORK_WORKERS="2")
    await parent.becomes(nodes=2)
    processes = [parent.fork_server, *parent.workers]
    crowd = LightDevices([parent.tcp], await register(parent.http, KEY, [f"1555020{index:04}" for index in range(40)]))
    await crowd.connect()
    try:
        # As a supervisor does that stops all processes of a service.
        for process in processes:
            process.terminate()
        await parent.process.stop()
        assert await parent.process.wait() == 0
        await polling.until(lambda: not any(map(is_running, processes)), seconds=TIMEOUT)
        closings = [reason for each in crowd.devices.values() for reason in each.closings]
        assert set(closings) == {device.SHUTDOWN}
        assert len(closings) >= 40
    finally:
        await crowd.close()


async def test_a_killed_worker_has_a_logged_successor_with_its_name(redis: RedisServer, start_node: StartNode) -> None:
    parent = await start_node(redis.url, TIDINGS_NETWORK_WORKERS="2")
    await parent.becomes(nodes=2)
    first, second = parent.workers
    os.kill(first.pid, signal.SIGKILL)
    await polling.until(lambda: len(parent.workers) == 2 and first not in parent.workers, seconds=TIMEOUT)
    assert second in parent.workers
    await parent.becomes(nodes=2, redis="ok")
    _, loads = await parent.health("/health/load")
    assert {node["node"] for node in loads["nodes"].values()} == {"network-0-0", "network-0-1"}
    assert "worker.ended worker=0 status=-9" in parent.process.log_tail(20_000)


async def test_without_the_fork_server_the_parent_ends_and_so_do_the_workers(
    redis: RedisServer, start_node: StartNode
) -> None:
    parent = await start_node(redis.url, TIDINGS_NETWORK_WORKERS="2")
    await parent.becomes(nodes=2)
    workers = parent.workers
    os.kill(parent.fork_server.pid, signal.SIGKILL)
    async with asyncio.timeout(TIMEOUT):
        assert await parent.process.wait() == 1
    # Their names and ports are free for its successor.
    assert not any(map(is_running, workers))
    assert "the process that forks the workers has ended" in parent.process.log_tail()
