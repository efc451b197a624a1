"""Half a million connections: the sum on paper, and a small network of workers with fleets forked from one process."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from benchmarks import connections
from benchmarks.devices import footprint
from benchmarks.devices.clients import SENDER, Clients
from benchmarks.devices.footprint import Footprint, Measured
from benchmarks.devices.network import DeviceNetwork, numbers
from harness import polling
from harness.control import ChildFailed
from harness.fleet_process import fork_fleets
from harness.mariadb import MariaDB

MIB = 2**20


def a_footprint(connections: int) -> Footprint:
    """Return the footprint of two nodes and two fleets: 4,000 bytes for each connection in a node, 2,000 in a fleet,
    4,000 for each end in the kernel, 100 in Redis.
    """
    return Footprint(
        nodes=100 * MIB + 4000 * connections,
        nodes_alone=40 * MIB + 4000 * connections,
        fleets=50 * MIB + 2000 * connections,
        fleets_alone=10 * MIB + 2000 * connections,
        kernel=8000 * connections,
        buffers=0,
        database=90 * MIB,
        redis=5 * MIB + 100 * connections,
        available=1000 * MIB - 15000 * connections,
    )


def test_the_sum_counts_shared_memory_once_and_other_memory_for_each_node() -> None:
    measured = Measured(2, 200, a_footprint(200), 1000, a_footprint(1000), link=1000.0)
    assert footprint.project(measured, 500_000) == {
        # 26 nodes for 19,300 connections each.
        "nodes without connections": 60 * MIB + 20 * 26 * MIB,
        "links between nodes": 26 * 25 * 1000,
        "connections in nodes": 2_000_000_000,
        "kernel, ends in nodes": 2_000_000_000,
        "kernel, ends in devices": 2_000_000_000,
        "Redis": 5 * MIB + 50_000_000,
        "MariaDB": 90 * MIB,
        "fleets without connections": 40 * MIB + 5 * 26 * MIB,
        "devices": 1_000_000_000,
        "together": 7_050_650_000 + (60 + 520 + 5 + 90 + 40 + 130) * MIB,
    }
    assert measured.cost.machine == 15000


def test_the_table_of_sums_has_a_column_for_each_number_of_connections() -> None:
    rows = connections.sum_table([{"together": 2**30}, {"together": 2**31}]).splitlines()
    assert rows[0] == "| GiB | 500,000 | 1,000,000 |"
    assert rows[2] == "| together | 1.00 | 2.00 |"


@pytest.mark.whole_system
async def test_devices_of_forked_fleets_get_messages_and_come_back_to_restarted_workers(
    mariadb: MariaDB, tmp_path: Path
) -> None:
    async with DeviceNetwork(tmp_path / "network", mariadb, nodes=2, forked=True) as network:
        fleets = await network.fork_fleets(2)
        assert len({fleet.pid for fleet in fleets} | {node.pid for node in network.nodes}) == 4
        some = numbers(40)
        tokens = await network.register([*some, SENDER])
        for index, fleet in enumerate(fleets):
            part = some[20 * index : 20 * index + 20]
            await network.attach(fleet, {number: tokens[number] for number in part}, index)
        sender = await network.fleet("sender")
        await network.attach(sender, {SENDER: tokens[SENDER]})
        clients = Clients(network, list(fleets), sender, some)
        await clients.send(some, rate=0, count=80, size=4096)
        found = footprint.read(network)
        assert 0 < found.nodes_alone < found.nodes
        assert 0 < found.fleets_alone < found.fleets
        killed = [node.pid for node in network.nodes]
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        await asyncio.gather(*(fleet.request("until_fewer", count=20, seconds=30) for fleet in fleets))
        await asyncio.gather(*(fleet.request("until_attached", count=20, seconds=60) for fleet in fleets))
        assert not {node.pid for node in network.nodes} & set(killed)


@pytest.mark.whole_system
async def test_pings_keep_silent_devices_connected(mariadb: MariaDB, tmp_path: Path) -> None:
    async with DeviceNetwork(
        tmp_path / "network", mariadb, nodes=2, forked=True, settings={"TIDINGS_NETWORK_IDLE_S": "8"}
    ) as network:
        first, second = await network.fork_fleets(2)
        for index, fleet in enumerate((first, second)):
            await network.attach(fleet, await network.register(numbers(5, index)), index)
        await first.request("keep_alive", period=1)

        async def is_silent_one_closed() -> bool:
            return "idle" in (await second.counts())["failures"]

        await polling.until(is_silent_one_closed, seconds=60)
        assert "idle" not in (await first.counts())["failures"]


async def test_a_killed_forked_fleet_fails_and_the_other_goes_on(tmp_path: Path) -> None:
    process, (first, second) = await fork_fleets(2, tmp_path)
    os.kill(first.pid, signal.SIGKILL)
    with pytest.raises(ChildFailed, match="fleet-0 is gone"):
        await first.request("until_attached", count=1, seconds=60)
    assert (await second.counts())["attached"] == 0
    await first.close()
    await second.close()
    assert await asyncio.to_thread(process.wait, 20) == 0
