"""Half a million connections on one machine: memory of each, connect rate, messages in turn, and a reconnect of all.

    python -m benchmarks.connections [--quick] [--only NAME ...] [--connections 500000] [--nodes N]

The nodes are workers of one process, and the fleets of devices are forked from one process too. A process may open
20,000 files here, so 500,000 connections take 26 nodes and 26 fleets. `links` runs without devices; the other runs use
the connections of `ramp`, which stops when the machine has less than 1 GiB left. Each figure is also appended to
`build/benchmarks/connections.jsonl` as soon as it is known; after a break, `--only` takes what is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import itertools
import json
import math
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from benchmarks import calibrations
from benchmarks.devices import footprint, readings
from benchmarks.devices.clients import SENDER, Clients
from benchmarks.devices.footprint import EACH, GIB, Footprint
from benchmarks.devices.network import DeviceNetwork, network_of, numbers
from benchmarks.rig import report, session, summary
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.seed004 import SHARES, figures
from harness.control import ChildFailed
from harness.fleet_process import FleetProcess
from harness.processes import usage

CONNECTIONS, QUICK = 500_000, 2000
# Rows of the table, each after a round in which every fleet connects more devices, and fleets that do so at a time.
ROUNDS, LANES = 10, 2
SIZE, RATE = 4096, 1000.0
# Seconds: without a frame after which a node closes a connection, and between two pings of a device.
IDLE, PING = 600, 480
# Seconds without activity before memory is read, and over which idle CPU is measured.
REST, QUIET = 3.0, 10.0
# Bytes that the machine must have left for the ramp to continue.
RESERVE = GIB
# Connections of the sums.
SUMS = (500_000, 1_000_000)
# Bytes of a node for a link of one direction, where the run `links` is left out.
LINK = 20_000.0
SAMPLES = 10.0  # seconds between two samples of all processes
PROGRESS = report.RAW / "connections.jsonl"


def note(what: str, **found: Any) -> None:
    """Print a figure, and append it to the file of progress."""
    line = json.dumps({"at": round(time.time()), "what": what, **found}, ensure_ascii=False)
    print(f"    {line}", flush=True)
    PROGRESS.parent.mkdir(parents=True, exist_ok=True)
    with PROGRESS.open("a") as file:
        file.write(line + "\n")


@dataclasses.dataclass(slots=True)
class ConnectedDevices:
    """Network and its connected devices."""

    network: DeviceNetwork
    wanted: int
    fleets: Sequence[FleetProcess]
    # After the first round, in which every process starts to work, and after the last one, with the connections then.
    first: tuple[int, Footprint] | None = None
    last: tuple[int, Footprint] | None = None
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    numbers: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    stopped: str = ""  # reason of the end

    @property
    def count(self) -> int:
        """Return how many devices are connected."""
        return len(self.numbers)

    async def climb(self) -> None:
        """Open connections until there are `wanted`, or the machine has too little memory left, or one fails."""
        bounds = [self.wanted * index // ROUNDS for index in range(ROUNDS + 1)]
        for start, end in itertools.pairwise(bounds):
            try:
                await self._round(range(start, end))
            except (TimeoutError, ChildFailed, RunFailed) as error:
                self.stopped = f"at {self.count:,} and some more: {str(error)[-300:]}"
                return
        self.stopped = f"at the {self.count:,} that were asked for"

    async def _round(self, devices: range) -> None:
        """Connect these devices, an equal part of them from each fleet. Raises `RunFailed`."""
        cpu, overflows, before = self._cpu(), readings.read_kernel().overflows, self.count
        parts = [devices[index :: len(self.fleets)] for index in range(len(self.fleets))]
        connecting = 0.0
        for first in range(0, len(parts), LANES):
            some = list(enumerate(parts))[first : first + LANES]
            if footprint.read_available() < RESERVE:
                raise RunFailed(f"the machine has less than {RESERVE / GIB:g} GiB left")
            tokens = {index: await self.network.register([_number(i) for i in part]) for index, part in some}
            began = time.monotonic()
            await asyncio.gather(*(self.network.attach(self.fleets[index], tokens[index], index) for index in tokens))
            connecting += time.monotonic() - began
            for each in tokens.values():
                self.numbers += each
        self.seconds += connecting
        cpu = self._cpu() - cpu
        await asyncio.sleep(REST)
        idle, idle_database = await self._idle()
        now = await asyncio.to_thread(footprint.read, self.network)
        self.last = self.count, now
        if self.first is None:
            self.first = self.last
        self._note(
            self.count - before,
            connecting,
            cpu,
            {
                "CPU of idle nodes, ms a second": f"{idle * 1000:.0f}",
                "CPU of MariaDB then": f"{idle_database * 1000:.0f}",
                "listen overflows": readings.read_kernel().overflows - overflows,
            },
        )

    async def _idle(self) -> tuple[float, float]:
        """Return the CPU seconds that all nodes, and the database, use in a second while nothing happens."""
        database = self.network.mariadb.pid
        assert database is not None
        began, nodes, used = time.monotonic(), self._cpu(), usage(database).cpu
        await asyncio.sleep(QUIET)
        seconds = time.monotonic() - began
        return (self._cpu() - nodes) / seconds, (usage(database).cpu - used) / seconds

    def _note(self, more: int, seconds: float, cpu: float, others: Mapping[str, Any]) -> None:
        """Add a row to the table.

        more:   connections of this round
        cpu:    seconds of all nodes in it, with registrations
        others: further columns
        """
        assert self.first is not None
        assert self.last is not None
        (few, with_few), (count, now) = self.first, self.last
        each = footprint.cost(with_few, now, count - few) if count > few else None
        self.rows.append(
            {
                "connections": f"{count:,}",
                "new a second": f"{more / seconds:,.0f}",
                "CPU of nodes for each, µs": round(cpu / more * 1e6),
                "bytes of nodes for each": f"{each.node:,.0f}" if each else "–",
                "bytes of fleets for each": f"{each.fleet:,.0f}" if each else "–",
                "bytes of the kernel for each end": f"{each.kernel:,.0f}" if each else "–",
                "bytes of the machine for each": f"{each.machine:,.0f}" if each else "–",
                "nodes, MiB": f"{now.nodes / 2**20:,.0f}",
                "fleets, MiB": f"{now.fleets / 2**20:,.0f}",
                "sockets, MiB": f"{now.kernel / 2**20:,.0f}",
                "data in sockets, MiB": f"{now.buffers / 2**20:.1f}",
                "MariaDB, MiB": f"{now.database / 2**20:.0f}",
                "Redis, MiB": f"{now.redis / 2**20:.0f}",
                "GiB left": f"{now.available / GIB:.1f}",
                **others,
            }
        )
        note("ramp", **self.rows[-1])

    def _cpu(self) -> float:
        return sum(node.cpu for node in self.network.nodes)


def _number(index: int) -> str:
    return numbers(1, index // 1_000_000)[0][:-6] + f"{index % 1_000_000:06}"


@asynccontextmanager
async def network_with_nodes(current: Session, nodes: int) -> AsyncIterator[DeviceNetwork]:
    """Run a network of workers, whose nodes close connections that are silent for longer than `IDLE`."""
    settings = {"TIDINGS_NETWORK_IDLE_S": str(IDLE)}
    async with network_of(current, nodes=nodes, forked=True, settings=settings) as network:
        yield network


async def links(current: Session, nodes: int) -> Run:
    """Measure nodes without devices: before and after each has opened a link to every other.

    With the first link a node also pays for the first use of everything. So two nodes are measured, too.
    """
    two, many = await _linked(current, 2), await _linked(current, nodes)
    link = {
        what: (many["grown"][what] / nodes - two["grown"][what] / 2) / max(1, nodes - 2) for what in ("alone", "kernel")
    }
    details = {
        "bytes of nodes for a link of one direction": round(link["alone"]),
        "bytes of the kernel for it": round(link["kernel"]),
        "bytes of a node for the first use of links": round(two["grown"]["alone"] / 2 - link["alone"]),
        "CPU of an idle node before, ms a second": round(many["cpu"][0], 2),
        "CPU of an idle node with its links, ms a second": round(many["cpu"][1], 2),
        "MiB of an empty node (PSS)": round(many["proportional"] / 2**20, 1),
        "MiB of it that are its own (USS)": round(many["alone"] / 2**20, 1),
    }
    note("links", nodes=nodes, **details)
    current.report.notes.append("\n".join(f"- {what}: {value:,}" for what, value in details.items()))
    count = nodes * (nodes - 1)
    title = f"{count} links of one direction between {nodes} nodes"
    return figures("links", title, count, "links", many["seconds"], many["samples"], details)


async def _linked(current: Session, nodes: int) -> dict[str, Any]:
    """Measure a network of this size: what its links take."""
    async with network_with_nodes(current, nodes) as network:
        async with network.sampler(SAMPLES) as sampler:
            before = await _idle(network)
            began = time.monotonic()
            for index, node in enumerate(network.nodes):
                # A registration is confirmed by all nodes.
                await network.register_at(node, [_number(index)])
            seconds = time.monotonic() - began
            after = await _idle(network)
        return {
            "grown": {what: after[what] - before[what] for what in ("alone", "kernel")},
            "cpu": [found["cpu"] / nodes * 1000 for found in (before, after)],
            "proportional": sum(footprint.proportional(pid) for pid in network.node_pids()) / nodes,
            "alone": after["alone"] / nodes,
            "seconds": seconds,
            "samples": sampler.samples,
        }


async def _idle(network: DeviceNetwork) -> dict[str, float]:
    """Return memory, and the CPU seconds that all nodes use in a second, at rest."""
    await asyncio.sleep(REST)
    began, cpu = time.monotonic(), sum(node.cpu for node in network.nodes)
    await asyncio.sleep(QUIET)
    cpu = (sum(node.cpu for node in network.nodes) - cpu) / (time.monotonic() - began)
    found = await asyncio.to_thread(footprint.read, network)
    return {"cpu": cpu, "alone": found.nodes_alone, "kernel": found.kernel}


async def measure_connections(current: Session, wanted: int, nodes: int, link: float) -> None:
    """Measure the ramp, then messages in turn and a reconnect of all its connections, each as a separate run."""
    async with network_with_nodes(current, nodes) as network:
        fleets = await network.fork_fleets(nodes)
        await asyncio.gather(*(fleet.request("keep_alive", period=PING) for fleet in fleets))
        climbing = ConnectedDevices(network, wanted, fleets)

        async def climb() -> Run:
            async with network.sampler(SAMPLES) as sampler:
                await climbing.climb()
            if climbing.first is None or climbing.last is None or climbing.first == climbing.last:
                raise RunFailed(climbing.stopped)
            (few, with_few), (count, with_all) = climbing.first, climbing.last
            measured = footprint.Measured(nodes, few, with_few, count, with_all, link)
            sums = [footprint.project(measured, count) for count in SUMS]
            note("sums", **{f"{count:,}": each for count, each in zip(SUMS, sums, strict=True)})
            current.report.notes += [
                "\n".join(report.table(list(climbing.rows[0]), [list(row.values()) for row in climbing.rows])),
                f"It stopped {climbing.stopped}.",
                sum_table(sums),
            ]
            details = {"rows": climbing.rows, "stopped": climbing.stopped, "sums": sums}
            title, samples = f"ramp, {nodes} nodes", sampler.samples
            return figures("ramp", title, climbing.count, "connections", climbing.seconds, samples, details)

        if await current.once(Variant("ramp", "ramp", climb), again=False) is None:
            return
        for name, measure in (("turns", turns), ("storm", storm)):
            if current.is_wanted(name):
                taken = functools.partial(measure, climbing)
                run = await current.once(Variant(name, name, taken), again=False)
                if run is not None and run.details:
                    note(name, **run.details)
                    current.report.notes.append(
                        "\n".join(f"- {what}: {value:,}" for what, value in run.details.items())
                    )


def sum_table(sums: Sequence[Mapping[str, int]]) -> str:
    """Return the sums on paper, of which each is the result of `footprint.project`."""
    rows = [[part, *(f"{each[part] / GIB:.2f}" for each in sums)] for part in sums[0]]
    return "\n".join(report.table(["GiB", *(f"{count:,}" for count in SUMS)], rows))


async def turns(climbed: ConnectedDevices) -> Run:
    """Send one envelope to every device in turn, which has received none before."""
    network = climbed.network
    sender = await network.fleet("sender")
    await network.attach(sender, await network.register([SENDER]))
    clients = Clients(network, list(climbed.fleets), sender, climbed.numbers)
    cpu = sum(node.cpu for node in network.nodes)
    async with network.sampler(SAMPLES) as sampler:
        said = await clients.send(climbed.numbers, rate=RATE, count=climbed.count, size=SIZE)
    times = summary.summarise(await clients.latencies())
    details = {
        "CPU of nodes for each, µs": round((sum(node.cpu for node in network.nodes) - cpu) / climbed.count * 1e6),
        "sender late, ms": round(said["lag"] * 1000, 1),
        "to the device, p50, ms": times.p50,
        "to the device, p99, ms": times.p99,
    }
    title = f"{RATE:,.0f} first messages of 4 KB a second to {climbed.count:,} connections in turn"
    found = figures("turns", title, climbed.count, "notifications", said["sent_in"], sampler.samples, details)
    return dataclasses.replace(found, latencies={"to the device": times})


async def storm(climbed: ConnectedDevices) -> Run:
    """Kill all nodes, which their parent restarts; measure when which fraction of the devices has reconnected."""
    network, overflows = climbed.network, readings.read_kernel().overflows
    there = [int((await fleet.counts())["attached"]) for fleet in climbed.fleets]
    began = time.monotonic()
    for node in network.nodes:
        os.kill(node.pid, signal.SIGKILL)
    await asyncio.gather(
        *(
            fleet.request("until_fewer", count=each, seconds=60)
            for fleet, each in zip(climbed.fleets, there, strict=True)
        )
    )
    details: dict[str, Any] = {}
    for share in SHARES:
        requests = [
            fleet.request("until_attached", count=int(each * share), seconds=3600)
            for fleet, each in zip(climbed.fleets, there, strict=True)
        ]
        moment = max(await asyncio.gather(*requests))
        details[f"seconds from the kill until {share:.0%} of {sum(there):,} were back"] = round(moment - began, 1)
    details["listen overflows"] = readings.read_kernel().overflows - overflows
    await asyncio.sleep(REST)
    after = await asyncio.to_thread(footprint.read, network)
    details["MiB of nodes, after it"] = round(after.nodes / 2**20)
    # Samplers need the counters of the same processes before and after.
    async with network.sampler(SAMPLES) as sampler:
        await asyncio.sleep(REST)
    return figures("storm", "all come back", sum(there), "connections", moment - began, sampler.samples, details)


async def measure(current: Session) -> None:
    """Carry out the wanted runs."""
    wanted = QUICK if current.options.quick else current.options.connections
    nodes = current.options.nodes or max(2, math.ceil(wanted / EACH))
    link = LINK
    if current.is_wanted("links"):
        run = await current.once(Variant("links", "links between idle nodes", functools.partial(links, current, nodes)))
        if run is not None:
            link = run.details["bytes of nodes for a link of one direction"]
    if any(map(current.is_wanted, ("ramp", "turns", "storm"))):
        await measure_connections(current, wanted, nodes, link)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help=f"of the ramp ({CONNECTIONS:,})")
    parser.add_argument("--nodes", type=int, default=0, help=f"nodes, and fleets (one for {EACH:,} connections)")


BENCHMARK = Benchmark(
    name="connections",
    title="Half a million connections of one machine",
    how=f"""Devices, each on a connection of its own from an address of its own, logged in, on nodes that are workers of
one process. Memory of nodes and fleets is proportional (PSS), so shared pages count once; that of the kernel is of its
caches of sockets, divided by both ends, which are on this machine; that of the machine is what it has less than before.
Nodes close connections that are silent for {IDLE} s, and devices send a ping every {PING} s. In *turns* every device
gets its first message. In *storm* all nodes are killed at once and restarted by their parent.""",
    measure=measure,
    calibrations=calibrations.COMMON,
    names=["links", "ramp", "turns", "storm"],
    add_options=_add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
