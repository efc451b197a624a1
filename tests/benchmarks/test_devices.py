"""Computations of the device workloads, and device processes that end."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from benchmarks import seed002, seed003
from benchmarks.devices.clients import SENDER, Clients
from benchmarks.devices.network import DeviceNetwork, numbers
from benchmarks.rig import summary
from benchmarks.rig.run import Run, RunFailed
from benchmarks.seed003 import Trial
from harness.control import ChildFailed
from harness.fleet_device import WS_JSON
from harness.fleet_process import FleetProcess
from harness.mariadb import MariaDB
from tests.benchmarks.test_rig import a_run


def attempts(most: float) -> Callable[[float], Awaitable[Trial]]:
    """Return a trial that is good up to the rate `most`, too slow up to twice as much, and fails beyond."""

    async def attempt(rate: float) -> Trial:
        if rate > 2 * most:
            raise RunFailed("not everything arrived")
        times = summary.summarise([0.1 if rate <= most else 1.5])
        return Trial(rate, 10, 1.0, times, 0.0, a_run("trial", 1).samples)

    return attempt


@pytest.mark.parametrize(("start", "most", "best"), [(400, 1000, 928), (400, 100, 97.65625), (1000, 900, 812.5)])
async def test_climb_finds_the_highest_sustained_rate_from_any_start(start: float, most: float, best: float) -> None:
    good, why = await seed003.climb(start, attempts(most))
    assert max(trial.rate for trial in good) == pytest.approx(best)
    assert all(trial.rate <= most for trial in good)
    assert why


async def test_climb_ends_when_no_rate_is_sustained() -> None:
    good, why = await seed003.climb(400, attempts(1))
    assert not good
    assert "not everything arrived" in why


def test_the_volley_table_shows_measured_and_published_values() -> None:
    details = {"ms": {f"{count}x{size}": [1.0, 2.0, 3.0, 4.0] for count in seed002.CLIENTS for size in seed002.SIZES}}
    run = a_run("volleys", 10)
    one, hundred = seed002.table({seed002.WAYS[WS_JSON]: dataclasses.replace(run, details=details)})
    assert "| 1 Message (1.5 KB) | 1.0 | 9.5 | 3.1 | 2.7 |" in one
    assert "| 1000 Messages (4 KB) | 4.0 | 32,833.4 | 6,910.7 | 6,391.0 |" in hundred


def test_the_echo_table_shows_fractions_of_the_published_rates_and_late_rounds() -> None:
    def of(conversations: int, rate: float, seconds: float) -> Run:
        run = dataclasses.replace(a_run("echo", rate), parameters={"conversations": conversations})
        return dataclasses.replace(run, latencies={"a round": summary.summarise([seconds])})

    rows = seed003.echo_table([of(512, 741, 0.967), of(1024, 800, 1.5)])[2:]
    assert rows == ["| 512 | 741 | 1.48 | 0.15 | 967 |", "| 1024 | 800 | 1.60 | 0.16 | 1,500 (over the limit) |"]


def test_ten_groups_has_the_published_shape() -> None:
    assert seed003.MEMBERS["ten-groups"] == 1000
    assert seed003.PUBLISHED["ten-groups"] == {10_000: (30, 30_000)}
    assert "ten-groups-10000" in seed003.BENCHMARK.names
    assert "ten-groups-1000" not in seed003.BENCHMARK.names


def test_the_runs_in_turn_write_to_as_many_connections_as_published() -> None:
    assert [name for name in seed002.BENCHMARK.names if name.startswith("turns-")] == [
        "turns-1000",
        "turns-10000",
        "turns-100000",
    ]


@pytest.mark.whole_system
async def test_several_nodes_deliver_to_devices_of_each(mariadb: MariaDB, tmp_path: Path) -> None:
    async with DeviceNetwork(tmp_path / "network", mariadb, nodes=2) as network:
        some = numbers(2)
        tokens = await network.register([*some, SENDER])
        fleets = [await network.fleet(), await network.fleet()]
        for index, number in enumerate(some):
            await network.attach(fleets[index], {number: tokens[number]}, index)
        sender = await network.fleet("sender")
        await network.attach(sender, {SENDER: tokens[SENDER]})
        clients = Clients(network, fleets, sender, some)
        await clients.send(some, rate=0, count=6, size=4096)
        assert [(await fleet.counts())["delivered"] for fleet in fleets] == [3, 3]


async def test_calls_to_a_killed_fleet_process_fail(tmp_path: Path) -> None:
    fleet = FleetProcess("fleet", tmp_path)
    await fleet.start()
    try:
        assert (await fleet.counts())["attached"] == 0
        os.kill(fleet.pid, signal.SIGKILL)
        with pytest.raises(ChildFailed, match="fleet is gone"):
            await fleet.request("until_attached", count=1, seconds=60)
        with pytest.raises(ChildFailed, match="fleet is gone"):
            await fleet.counts()
    finally:
        await fleet.close()
