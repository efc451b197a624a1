"""Memory of a network with many connections, by its owner, and what it would be with more of them."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import psutil

from benchmarks.devices import readings
from benchmarks.devices.network import DeviceNetwork, proportional

GIB = 2**30
# Connections of a node: it may open 20,000 files, and the kernel spreads connections over the nodes at random.
EACH = 19_300


@dataclasses.dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes in use at one time. Shared memory of nodes and of fleets counts once."""

    nodes: int  # of all nodes, with the processes that start and fork them
    nodes_alone: int  # of nodes, what no two processes share
    fleets: int
    fleets_alone: int
    kernel: int  # objects for sockets; both ends of each connection are on this machine
    buffers: int  # data in sockets
    database: int
    redis: int
    available: int  # what the machine has left


def read(network: DeviceNetwork) -> Footprint:
    """Read the present values. Blocks."""
    kernel = readings.read_kernel()
    fleets = [fleet.pid for fleet in network.fleets]
    return Footprint(
        nodes=sum(map(proportional, network.node_pids())),
        nodes_alone=sum(_alone(node.pid) for node in network.nodes),
        fleets=sum(map(proportional, fleets)),
        fleets_alone=sum(map(_alone, fleets)),
        kernel=kernel.slabs,
        buffers=kernel.buffers,
        database=_resident(network.mariadb.pid),
        redis=_resident(network.redis_pid),
        available=read_available(),
    )


def read_available() -> int:
    """Return the bytes that programs can still get."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _alone(pid: int) -> int:
    return int(psutil.Process(pid).memory_full_info().uss)


def _resident(pid: int | None) -> int:
    return int(psutil.Process(pid).memory_info().rss) if pid is not None else 0


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """Bytes for each connection, as the difference of two footprints."""

    node: float
    fleet: float
    kernel: float  # of one end
    redis: float
    machine: float  # what the machine has less, with both ends and everything else that ran


def cost(fewer: Footprint, more: Footprint, connections: int) -> Cost:
    """Return the cost of each of these further connections."""
    return Cost(
        node=(more.nodes - fewer.nodes) / connections,
        fleet=(more.fleets - fewer.fleets) / connections,
        kernel=(more.kernel - fewer.kernel) / connections / 2,
        redis=(more.redis - fewer.redis) / connections,
        machine=(fewer.available - more.available) / connections,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """Footprints with few connections and with all of them, in which every process has started to work."""

    nodes: int  # and fleets
    few: int  # connections
    with_few: Footprint
    all: int  # connections
    with_all: Footprint
    link: float  # bytes of a node for a link to another node, of one direction

    @property
    def cost(self) -> Cost:
        """Return the cost of each connection beyond the first ones, which pay for the first use of everything."""
        return cost(self.with_few, self.with_all, self.all - self.few)


def project(measured: Measured, connections: int) -> dict[str, int]:
    """Return the bytes of the parts of a network with this number of connections."""
    each, few = measured.cost, measured.with_few
    needed = max(2, math.ceil(connections / EACH))

    def of(all: int, alone: int, size: float) -> float:
        """Return the bytes of the needed processes without connections, whose shared memory stays the same.

        all:   bytes of the measured processes
        alone: of it, what they do not share
        size:  bytes of a connection
        """
        return all - alone + (alone - measured.few * size) / measured.nodes * needed

    parts = {
        "nodes without connections": of(few.nodes, few.nodes_alone, each.node),
        "links between nodes": needed * (needed - 1) * measured.link,
        "connections in nodes": connections * each.node,
        "kernel, ends in nodes": connections * each.kernel,
        "kernel, ends in devices": connections * each.kernel,
        "Redis": few.redis + (connections - measured.few) * each.redis,
        "MariaDB": measured.with_all.database,
        "fleets without connections": of(few.fleets, few.fleets_alone, each.fleet),
        "devices": connections * each.fleet,
    }
    found = {name: round(size) for name, size in parts.items()}
    return {**found, "together": sum(found.values())}
