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
    nodes_alone: int  # of it, what no two processes share
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
    nodes, fleets = network.node_pids(), [fleet.pid for fleet in network.fleets]
    return Footprint(
        nodes=sum(map(proportional, nodes)),
        nodes_alone=sum(map(_alone, nodes)),
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
    machine: float  # what the machine has less, with both ends and everything else that ran meanwhile


def cost(empty: Footprint, full: Footprint, connections: int) -> Cost:
    """Return what each of so many connections costs."""
    return Cost(
        node=(full.nodes - empty.nodes) / connections,
        fleet=(full.fleets - empty.fleets) / connections,
        kernel=(full.kernel - empty.kernel) / connections / 2,
        redis=(full.redis - empty.redis) / connections,
        machine=(empty.available - full.available) / connections,
    )


def project(
    empty: Footprint, full: Footprint, *, measured: int, nodes: int, link: float, connections: int
) -> dict[str, int]:
    """Return the bytes of the parts of a network with so many connections, extrapolated from a smaller one.

    empty:    without connections, but with all processes
    full:     with connections
    measured: number of connections in `full`
    nodes:    nodes, and fleets, in both
    link:     bytes of a node for a link to another node, of one direction
    """
    each = cost(empty, full, measured)
    needed = max(2, math.ceil(connections / EACH))

    def of(shared: int, alone: int) -> float:
        """Return the bytes of so many empty processes, whose shared memory stays the same."""
        return shared - alone + alone / nodes * needed

    parts = {
        "nodes, empty": of(empty.nodes, empty.nodes_alone),
        "links between nodes": needed * (needed - 1) * link,
        "connections in nodes": connections * each.node,
        "kernel, ends in nodes": connections * each.kernel,
        "kernel, ends in devices": connections * each.kernel,
        "Redis": empty.redis + connections * each.redis,
        "MariaDB": full.database,
        "fleets, empty": of(empty.fleets, empty.fleets_alone),
        "devices": connections * each.fleet,
    }
    found = {name: round(size) for name, size in parts.items()}
    return {**found, "together": sum(found.values())}
