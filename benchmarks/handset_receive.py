"""CPU time of a handset process per received message: decrypt, store, acknowledge, two receipts.

A scripted network in a second process delivers messages that were encrypted beforehand, over a socket, at a steady rate
or as fast as they are acknowledged. Prints µs of this process's CPU time per message, warm and for new sessions.

    python -m benchmarks.handset_receive [--robots 500] [--messages 10000] [--rate 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import multiprocessing.connection
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from handset.devices import keys
from handset.devices.context import FleetContext
from handset.devices.row_sealer import RowSealer
from handset.fleet import Fleet
from handset.robots.behaviours import Behaviour, number_of
from handset.robots.robots import Robots
from handset.shown_log import ShownLog
from harness import metrics
from tests.handset.scripted import Business, ScriptedNetwork, make_device
from tidings.aio.clock import SystemClock
from tidings.client import transports
from tidings.installation.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.database import Database
from tidings.storage.handset import devices, prekeys
from tidings.wire import device as wire

BODY = "x" * 100
TICK = 0.01  # seconds between two bursts at a steady rate


class _Responses:
    """Accept the sends of one event-loop iteration with one frame, as the network does."""

    def __init__(self, network: ScriptedNetwork) -> None:
        self._network = network
        self._accepted: list[int] = []

    def accept(self, frame: wire.Send) -> None:
        if not self._accepted:
            asyncio.get_running_loop().call_soon(self._flush)
        self._accepted.append(frame.n)

    def _flush(self) -> None:
        self._network.send(wire.Accepted(self._accepted))
        self._accepted = []


async def _simulate_network(pipe: multiprocessing.connection.Connection, rate: int) -> None:
    """Run the other process: wait for the robots, set up sessions, then deliver messages at `rate` per second."""
    network, business = ScriptedNetwork(), Business()
    network.respond = _Responses(network).accept
    pipe.send(await network.start())
    loop = asyncio.get_running_loop()
    registered: list[tuple[Any, Any]] = await loop.run_in_executor(None, pipe.recv)
    await network.until_online(*(device.number for device, _ in registered))
    for device, key_set in registered:
        business.open(device, key_set)
    while True:
        job: tuple[str, int] = await loop.run_in_executor(None, pipe.recv)
        kind, count = job
        if kind == "stop":
            await network.close()
            return
        frames = [business.seal(registered[n % len(registered)][0].number, BODY) for n in range(count)]
        sends_before = len(network.sends)

        def acknowledged(before: int = sends_before, wanted: int = 2 * count) -> bool:
            """Count by `refs`, since receipts of one recipient may share an envelope."""
            return sum(len(frame.refs) for frame in network.sends[before:]) >= wanted

        pipe.send("begin")
        await loop.run_in_executor(None, pipe.recv)
        numbers = []
        started = loop.time()
        for start in range(0, count, max(1, int(rate * TICK))):
            numbers += [network.deliver(frame) for frame in frames[start : start + max(1, int(rate * TICK))]]
            await asyncio.sleep(max(0.0, started + len(numbers) / rate - loop.time()))
        await network.until_acked(*numbers)
        await network.until(acknowledged, timeout=60)
        pipe.send("end")
        for frame in network.sends[sends_before:]:
            if frame.body:
                business.open_sealed(frame)


def _network_process(pipe: multiprocessing.connection.Connection, rate: int) -> None:
    uvloop.run(_simulate_network(pipe, rate))


def committed() -> float:
    return metrics.value("tidings_db_commits_total", family="handset")


async def measure(robots: int, messages: int, rate: int, folder: Path) -> None:
    """Run the benchmark and print its results."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_network_process, args=(theirs, rate), daemon=True)
    process.start()
    loop = asyncio.get_running_loop()
    address = await loop.run_in_executor(None, ours.recv)
    database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{folder / 'handset.db'}", pool_size=3), "handset")
    await schema.upgrade(database)
    sealer, clock = RowSealer(bytes(32)), SystemClock()
    made = [make_device(number_of(Behaviour.READS, index)) for index in range(robots)]
    async with database.transaction() as connection:
        await devices.save(connection, [sealer.device_row(device, "robots") for device, _ in made])
        rows = [
            row
            for device, key_set in made
            for row in keys.rows(sealer, device.number, key_set, int(clock.now() * 1000))
        ]
        await prekeys.add(connection, rows)
    shown_log = ShownLog(folder / "robots.jsonl", clock)
    fleet_devices = [device for device, _ in made]
    context = FleetContext("robots", database, sealer, clock)
    fleet = Fleet(context, fleet_devices, Robots(shown_log), dials=[transports.tcp(*address)])
    stop = asyncio.Event()
    running = asyncio.create_task(fleet.run(stop))
    await fleet.ready.wait()
    await loop.run_in_executor(None, ours.send, [(_Public(device), key_set) for device, key_set in made])
    # The second message of a session completes its key exchange.
    rounds = (("new sessions", robots), ("second", robots), ("warm", messages), ("warm", messages))
    for name, count in rounds:
        ours.send(("deliver", count))
        await loop.run_in_executor(None, ours.recv)
        cpu, wall, commits = time.process_time(), time.perf_counter(), committed()
        ours.send("go")
        await loop.run_in_executor(None, ours.recv)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        commits = committed() - commits
        print(
            f"{name:13} {count:6} messages  {count / wall:7.0f}/s  {cpu / count * 1e6:6.0f} µs CPU a message"
            f"  {count / commits:5.1f} messages a commit"
        )
    print(f"memory at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    ours.send(("stop", 0))
    stop.set()
    await running
    shown_log.close()
    await database.close()
    process.join(5)


class _Public:
    """Part of a device that the network knows."""

    def __init__(self, device: Any) -> None:
        self.number = device.number
        self.registration_id = device.registration_id
        self.identity = _Identity(device.identity.public)


class _Identity:
    def __init__(self, public: bytes) -> None:
        self.public = public


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", type=int, default=500)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidings-handset-") as folder:
        uvloop.run(measure(options.robots, options.messages, options.rate, Path(folder)))


if __name__ == "__main__":
    main()
