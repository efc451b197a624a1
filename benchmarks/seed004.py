"""Maximum number of connections on this machine: a ramp to the limit, the cost of each, and a reconnect of all.

    python -m benchmarks.seed004 [--quick] [--only NAME ...] [--connections 100000]

Nodes are added as they fill up, since a process may open a limited number of files. After each step the memory of nodes
and kernel is read at rest. With all connections open, envelopes are sent for a while, and each second the queues, the
garbage collector and the kernel's counters are read. Then all nodes are killed at once and restarted, and every device
reconnects with full jitter, each from its own address.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import calibrations
from benchmarks.devices import readings
from benchmarks.devices.clients import SENDER, Clients
from benchmarks.devices.network import DeviceNetwork, most_connections, network_of, numbers
from benchmarks.rig import report, session, summary
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.sampler import Samples, depths
from benchmarks.rig.session import Benchmark, Session, Variant
from harness import measure as metrics
from harness.control import ChildFailed
from harness.fleet_device import TCP, WS_JSON
from harness.fleet_process import FleetProcess

CONNECTIONS, QUICK, STEP = 100_000, 2000, 10_000
# Connections of the ramp over WebSocket, and of the run in which one of two nodes is killed.
WEBSOCKETS, DEATH = 20_000, 20_000
SIZE, RATE, SECONDS = 1024, 1000.0, 15
# Seconds without activity before memory is read.
REST = 3.0
SHARES = (0.5, 0.9, 0.99, 1.0)


@dataclasses.dataclass(slots=True)
class Ramp:
    """Increasing number of connections."""

    network: DeviceNetwork
    transport: str
    wanted: int
    fleets: list[FleetProcess] = dataclasses.field(default_factory=list)
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    count: int = 0
    seconds: float = 0.0
    stopped: str = ""  # reason of the end

    async def climb(self) -> None:
        """Open connections until there are `wanted`, or no more can be opened."""
        kernel, memory = readings.read_kernel(), self._memory()
        for index, node in enumerate(self.network.nodes):
            fleet = await self.network.fleet()
            self.fleets.append(fleet)
            left = min(most_connections(), self.wanted - self.count)
            while left > 0:
                step = min(left, STEP)
                tokens = await self.network.register(numbers(self.count + step)[self.count :])
                cpu, overflows = node.cpu, readings.read_kernel().overflows
                try:
                    seconds = await self.network.attach(fleet, tokens, index, self.transport)
                except (TimeoutError, ChildFailed) as error:
                    self.stopped = f"at {self.count:,} and some of {step:,} more: {str(error)[-300:]}"
                    return
                self.count += step
                self.seconds += seconds
                left -= step
                used = node.cpu - cpu
                await asyncio.sleep(REST)
                self._note(step, seconds, used, overflows, kernel, memory)
        self.stopped = f"at the {self.count:,} that were asked for"

    def _note(
        self, step: int, seconds: float, cpu: float, overflows: int, kernel: readings.Kernel, memory: int
    ) -> None:
        now = readings.read_kernel()
        self.rows.append(
            {
                "connections": f"{self.count:,}",
                "new a second": f"{step / seconds:,.0f}",
                "CPU of the node for each, µs": round(cpu / step * 1e6),
                "bytes of nodes for each": f"{(self._memory() - memory) / self.count:,.0f}",
                # Both ends are on this machine.
                "bytes of the kernel for each end": f"{(now.slabs - kernel.slabs) / self.count / 2:,.0f}",
                "data in sockets, MiB": f"{now.buffers / 2**20:.1f}",
                "listen overflows": now.overflows - overflows,
            }
        )
        print(f"    {self.rows[-1]}", flush=True)

    def _memory(self) -> int:
        return sum(node.memory for node in self.network.nodes)


def figures(
    name: str, title: str, count: int, unit: str, seconds: float, samples: Samples, details: Mapping[str, Any]
) -> Run:
    """Return a run without latencies."""
    return Run(
        name=name,
        title=title,
        count=count,
        unit=unit,
        seconds=seconds,
        rate=count / seconds,
        latencies={},
        throughput=[],
        samples=samples,
        details=details,
    )


async def ramp(current: Session, transport: str, wanted: int) -> None:
    """Measure the ramp, then traffic and a reconnect of all its connections, each as a separate run."""
    nodes = -(-wanted // most_connections())
    async with network_of(current, nodes=nodes) as network:
        climbing = Ramp(network, transport, wanted)
        name = f"ramp-{transport}"

        async def climb() -> Run:
            async with network.sampler() as sampler:
                await climbing.climb()
            if not climbing.count:
                raise RunFailed(climbing.stopped)
            details = {"rows": climbing.rows, "stopped": climbing.stopped}
            title = f"ramp over {transport}, {nodes} nodes"
            return figures(name, title, climbing.count, "connections", climbing.seconds, sampler.samples, details)

        if await current.once(Variant(name, name, climb), again=False) is None:
            return
        current.report.notes.append(f"{_rows(climbing.rows)}\n\nIt stopped {climbing.stopped}.")
        name = f"traffic-{transport}"
        run = await current.once(Variant(name, name, functools.partial(traffic, network, climbing, name)), again=False)
        if run is not None:
            current.report.notes.append(_rows(run.details["rows"]))
        name = f"storm-{transport}"
        run = await current.once(Variant(name, name, functools.partial(storm, network, climbing, name)), again=False)
        if run is not None:
            current.report.notes.append("\n".join(f"- {what}: {value:,}" for what, value in run.details.items()))


async def traffic(network: DeviceNetwork, climbed: Ramp, name: str) -> Run:
    """Send envelopes to devices that have received none yet, then to the same devices again."""
    sender = await network.fleet("sender")
    await network.attach(sender, await network.register([SENDER]))
    clients = Clients(network, climbed.fleets, sender, numbers(climbed.count))
    count = min(climbed.count, int(RATE * SECONDS))
    some = clients.numbers[:: climbed.count // count][:count]
    rows: list[dict[str, Any]] = []
    async with network.sampler() as sampler:
        sending = asyncio.create_task(clients.send(some, rate=RATE, count=2 * count, size=SIZE))
        before = await asyncio.to_thread(CounterSample, network)
        while not sending.done():
            await asyncio.wait([sending], timeout=1.0)
            now = await asyncio.to_thread(CounterSample, network)
            rows.append(now.since(before))
            before = now
        said = await sending
    times = summary.summarise(await clients.latencies())
    found = figures(
        name,
        f"{RATE:,.0f} envelopes a second with {climbed.count:,} connections",
        2 * count,
        "envelopes",
        said["sent_in"],
        sampler.samples,
        {"rows": rows[1:]},
    )
    return dataclasses.replace(found, latencies={"to the device": times})


class CounterSample:
    """Counters of all nodes and of the kernel at one time."""

    def __init__(self, network: DeviceNetwork) -> None:
        texts = network.metrics().values()
        self.at = time.monotonic()
        self.kernel = readings.read_kernel()
        self.cpu = sum(node.cpu for node in network.nodes)
        self.depths = [depth for text in texts for depth in depths(text).values()]

        def total(name: str) -> float:
            return sum(metrics.metric(text, name) for text in texts)

        self.inbound = total("tidings_network_envelopes_total")
        self.outbound = total("tidings_network_deliveries_total")
        self.pauses, self.paused = total("tidings_gc_pause_seconds_count"), total("tidings_gc_pause_seconds_sum")

    def since(self, before: CounterSample) -> dict[str, Any]:
        """Return the changes since `before`, with the names of the published tables."""
        seconds = self.at - before.at
        return {
            "msgqlen tot": f"{sum(self.depths):,.0f}",
            "max": f"{max(self.depths, default=0):,.0f}",
            "nonz": sum(map(bool, self.depths)),
            "msgin /s": f"{(self.inbound - before.inbound) / seconds:,.0f}",
            "msgout /s": f"{(self.outbound - before.outbound) / seconds:,.0f}",
            "sched %util": f"{100 * (self.cpu - before.cpu) / seconds:.0f}",
            "gc /s": f"{(self.pauses - before.pauses) / seconds:.1f}",
            "gc ms/s": f"{1000 * (self.paused - before.paused) / seconds:.1f}",
            "spkt/s": f"{(self.kernel.sent - before.kernel.sent) / seconds:,.0f}",
            "rpkt/s": f"{(self.kernel.received - before.kernel.received) / seconds:,.0f}",
            "rxmt": self.kernel.repeated - before.kernel.repeated,
            "listn ovflw": self.kernel.overflows - before.kernel.overflows,
            "conn": f"{self.kernel.sockets // 2:,}",
        }


async def storm(network: DeviceNetwork, climbed: Ramp, name: str) -> Run:
    """Kill and restart all nodes; measure when which fraction of the devices has reconnected."""
    overflows = readings.read_kernel().overflows
    there = [int((await fleet.counts())["attached"]) for fleet in climbed.fleets]
    for node in network.nodes:
        await node.process.kill9()
    began = time.monotonic()
    await asyncio.gather(*(node.process.start() for node in network.nodes))
    details: dict[str, Any] = {"seconds until all nodes were started": round(time.monotonic() - began, 1)}
    async with network.sampler() as sampler:
        for share in SHARES:
            goals = [int(each * share) for each in there]
            requests = [
                fleet.request("until_attached", count=goal, seconds=600)
                for fleet, goal in zip(climbed.fleets, goals, strict=True)
            ]
            moment = max(await asyncio.gather(*requests))
            details[f"seconds from the kill until {share:.0%} of {sum(there):,} were back"] = round(moment - began, 1)
    details["listen overflows"] = readings.read_kernel().overflows - overflows
    return figures(name, "all come back", sum(there), "connections", moment - began, sampler.samples, details)


async def death(current: Session) -> Run:
    """Kill one of two nodes that have half of the devices each; its devices reconnect to the other."""
    count = QUICK if current.options.quick else min(DEATH, most_connections())
    async with network_of(current, nodes=2) as network:
        before = network.nodes[0].memory
        tokens = await network.register(numbers(count))
        fleet = await network.fleet()
        addresses = [node.tcp_address for node in network.nodes]
        connecting = await fleet.open(tokens, addresses, source="127.9")
        await asyncio.sleep(REST)
        memory = network.nodes[0].memory - before
        details: dict[str, Any] = {
            "seconds to connect all": round(connecting, 1),
            "bytes of a node for each connection": round(memory / (count / 2)),
        }
        await fleet.request("addresses", addresses=addresses[:1])
        async with network.sampler() as sampler:
            began = time.monotonic()
            await network.nodes.pop().process.kill9()
            await fleet.request("until_fewer", count=count, seconds=60)
            for share in SHARES:
                goal = count - int(count / 2 * (1 - share))
                moment = await fleet.request("until_attached", count=goal, seconds=600)
                details[f"seconds until {share:.0%} of {count // 2:,} were back"] = round(moment - began, 1)
        details["MiB of the node with all of them"] = round(network.nodes[0].memory / 2**20, 1)
    current.report.notes.append("\n".join(f"- {what}: {value:,}" for what, value in details.items()))
    title = f"{count:,} devices on two nodes, one of which dies"
    return figures("death", title, count // 2, "connections", moment - began, sampler.samples, details)


async def measure(current: Session) -> None:
    """Carry out the wanted runs."""
    wanted = QUICK if current.options.quick else current.options.connections
    if current.is_wanted("tcp"):
        await ramp(current, TCP, wanted)
    if current.is_wanted("death"):
        await current.once(Variant("death", "the death of one of two nodes", functools.partial(death, current)))
    if current.is_wanted("ws-json"):
        await ramp(current, WS_JSON, min(wanted, WEBSOCKETS))


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(report.table(list(rows[0]), [list(row.values()) for row in rows])) if rows else ""


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help=f"of the ramp ({CONNECTIONS:,})")


BENCHMARK = Benchmark(
    name="seed004",
    title="Connections of one machine",
    how="""Idle devices, each on a connection of its own from an address of its own, logged in, on as many nodes as it
takes: a process may open 20,000 files here. Memory of nodes is what is theirs alone (USS); that of the kernel is of its
caches of sockets, divided by both ends, which are on this machine. A connection and its login have to be served before
more than so many others come, or the network tells them to come back later, as it tells unauthenticated clients.""",
    measure=measure,
    calibrations=calibrations.COMMON,
    names=["tcp", "ws-json", "death"],
    add_options=_add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
