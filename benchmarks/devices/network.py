"""Network for benchmarks: one node, or several with Redis, on a private MariaDB, and fleets of devices.

Several nodes are started one by one, or as the workers of one process.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import resource
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from benchmarks.rig.run import RunFailed
from benchmarks.rig.sampler import INTERVAL, Sampler
from benchmarks.rig.session import Session
from harness.fleet_device import TCP
from harness.fleet_process import FleetProcess, fork_fleets
from harness.light_devices import register
from harness.mariadb import MariaDB, free_port
from harness.processes import Process, usage
from harness.redis_server import RedisServer

KEY = "the registration key of benchmarks"
API_KEY = "the key of benchmarks"
DATABASE = "devices"
# Open files of a process in addition to its connections.
FILES = 500
PREFIX = "1555"
# Name of the nodes that are workers, before their index.
WORKERS = "worker"


@dataclasses.dataclass(slots=True)
class Node:
    """One network process."""

    process: Process
    http: str
    http_address: tuple[str, int]
    tcp_address: tuple[str, int]

    @property
    def name(self) -> str:
        """Return its name in results."""
        return self.process.name

    @property
    def pid(self) -> int:
        assert self.process.pid is not None, f"{self.process.name} is gone: {self.process.log_tail()}"
        return self.process.pid

    @property
    def cpu(self) -> float:
        """Return the CPU seconds used so far."""
        return usage(self.pid).cpu

    @property
    def memory(self) -> int:
        """Return the bytes that are unique to this process (USS)."""
        return int(psutil.Process(self.pid).memory_full_info().uss)


@dataclasses.dataclass(slots=True)
class WorkerNode(Node):
    """Worker of a network process; all workers share the address for TCP."""

    index: int
    records: Path  # folder with a record of each running process

    @property
    def name(self) -> str:
        return f"network{self.index or ''}"

    @property
    def pid(self) -> int:
        """Return the process id, also of a worker that has replaced one. Raises `RunFailed`."""
        own = f"{WORKERS}-{self.index}"
        newest = sorted(self.records.glob("network-*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in newest:
            with contextlib.suppress(OSError, ValueError):
                record = json.loads(path.read_text())
                if record["variables"].get("TIDINGS_NETWORK_NODE") == own:
                    return int(record["pid"])
        raise RunFailed(f"no worker {self.index}: {self.process.log_tail()}")


def proportional(pid: int) -> int:
    """Return the bytes of a process, of which it counts shared ones in proportion (PSS)."""
    return int(psutil.Process(pid).memory_full_info().pss)


def numbers(count: int, block: int = 0) -> list[str]:
    """Return numbers for devices; each block has a million."""
    return [f"{PREFIX}{block}{index:06}" for index in range(count)]


def most_connections() -> int:
    """Return how many connections one process can hold here."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1] - FILES


class DeviceNetwork:
    """Network as an asynchronous context manager, which removes everything but the database server at its end.

    settings: environment variables of every node, in addition to those of the harness; limits are off
    forked: whether several nodes are workers of one process, and fleets are forked from one
    """

    def __init__(
        self,
        directory: Path,
        mariadb: MariaDB,
        *,
        nodes: int = 1,
        settings: Mapping[str, str] | None = None,
        forked: bool = False,
    ) -> None:
        self.directory = directory
        self.mariadb = mariadb
        self._redis = RedisServer() if nodes > 1 else None
        self.nodes: list[Node] = []
        self.fleets: list[FleetProcess] = []
        self._count = nodes
        self._settings = dict(settings or {})
        self._forked = forked
        self._fleets: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        self.directory.mkdir(exist_ok=True)
        with self.mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
            cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        if self._redis is not None:
            await asyncio.to_thread(self._redis.start)
        if self._forked:
            await self._start_workers()
        else:
            for index in range(self._count):
                await self._start(index)
        return self

    async def __aexit__(self, *error: object) -> None:
        for fleet in self.fleets:
            await fleet.close()
        processes = {node.process.name: node.process for node in self.nodes}
        await asyncio.gather(*(process.stop() for process in processes.values()), return_exceptions=True)
        if self._fleets is not None:
            await asyncio.to_thread(self._fleets.wait, 20)
        if self._redis is not None:
            await asyncio.to_thread(self._redis.remove)

    async def _start(self, index: int) -> None:
        http, tcp = free_port(), free_port()
        variables = self._variables(f"node-{index}", http, tcp)
        process = Process(f"network{index or ''}", "network", variables, self.directory)
        await process.start()
        self.nodes.append(Node(process, f"http://127.0.0.1:{http}", ("127.0.0.1", http), ("127.0.0.1", tcp)))

    async def _start_workers(self) -> None:
        http, tcp = free_port(), free_port()
        first = _free_ports(self._count)
        variables = self._variables(WORKERS, http, tcp) | {
            "TIDINGS_NETWORK_WORKERS": str(self._count),
            "TIDINGS_NETWORK_WORKER_PORT": str(first),
        }
        process = Process("workers", "network", variables, self.directory)
        records = Path(variables["TIDINGS_DATA_DIR"]) / "processes"
        await process.start()
        for index in range(self._count):
            http = first + index
            addresses = f"http://127.0.0.1:{http}", ("127.0.0.1", http), ("127.0.0.1", tcp)
            self.nodes.append(WorkerNode(process, *addresses, index, records))

    def _variables(self, name: str, http: int, tcp: int) -> dict[str, str]:
        """Return the variables of the node with this name."""
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        variables = {
            "TIDINGS_DATA_DIR": str(directory),
            # A node refuses a directory of blobs that is not the one of the others.
            "TIDINGS_NETWORK_BLOB_DIR": str(self.directory / "blobs"),
            "TIDINGS_EMBEDDED": "1",
            "TIDINGS_NETWORK_DB_URL": self.mariadb.url(DATABASE),
            "TIDINGS_REGISTRATION_KEY": KEY,
            "WA_API_KEY": API_KEY,
            "TIDINGS_NETWORK_HTTP_ADDRESS": f"127.0.0.1:{http}",
            "TIDINGS_NETWORK_TCP_ADDRESS": f"127.0.0.1:{tcp}",
            "TIDINGS_NETWORK_CONNECTIONS": "1000000",
            "TIDINGS_NETWORK_HTTP_CONNECTIONS": "1000000",
            # Devices that are not being measured stay silent for longer than real ones may.
            "TIDINGS_NETWORK_IDLE_S": "7200",
            "TIDINGS_NETWORK_PAIR_RATE": "0",
            "TIDINGS_LOG_LEVEL": "warning",
            **self._settings,
        }
        if self._redis is not None:
            variables |= {"TIDINGS_REDIS_URL": self._redis.url, "TIDINGS_NETWORK_NODE": name}
        return variables

    async def register(self, some: Sequence[str]) -> dict[str, str]:
        """Register these numbers; return their tokens."""
        return await self.register_at(self.nodes[0], some)

    async def register_at(self, node: Node, some: Sequence[str]) -> dict[str, str]:
        """Register these numbers over HTTP at this node; return their tokens."""
        return await register(node.http, KEY, some)

    async def fleet(self, name: str = "") -> FleetProcess:
        """Start another process for devices."""
        fleet = FleetProcess(name or f"fleet-{len(self.fleets)}", self.directory)
        await fleet.start()
        self.fleets.append(fleet)
        return fleet

    async def fork_fleets(self, count: int) -> Sequence[FleetProcess]:
        """Start processes for devices, forked from one."""
        self._fleets, forked = await fork_fleets(count, self.directory)
        self.fleets += forked
        return forked

    @property
    def redis_pid(self) -> int | None:
        """Return the process id of Redis; `None` without one."""
        return self._redis.pid if self._redis is not None else None

    def node_pids(self) -> list[int]:
        """Return the process ids of all nodes, and of the processes that start and fork workers."""
        found = [node.pid for node in self.nodes]
        if self._forked and (parent := self.nodes[0].process.pid) is not None:
            found += [parent, *(child.pid for child in psutil.Process(parent).children())]
        return found

    def pids(self) -> dict[str, int]:
        """Return the process ids of all processes but this one, by name."""
        found = {node.name: node.pid if self._forked else node.process.pid for node in self.nodes}
        found |= {fleet.name: fleet.pid for fleet in self.fleets}
        found |= {"mariadbd": self.mariadb.pid, "redis": self._redis.pid if self._redis is not None else None}
        return {name: pid for name, pid in found.items() if pid is not None}

    def metrics(self) -> dict[str, str]:
        """Return the Prometheus text of each node. Blocks."""
        found = {}
        for node in self.nodes:
            request = urllib.request.Request(f"{node.http}/metrics", headers={"Authorization": f"Apikey {API_KEY}"})
            with urllib.request.urlopen(request, timeout=30) as response:
                found[node.name] = response.read().decode()
        return found

    def sampler(self, interval: float = INTERVAL) -> Sampler:
        """Return a sampler of all processes. interval: seconds between samples"""
        return Sampler(self.pids, metrics=self.metrics, mariadb=self.mariadb, interval=interval)

    async def attach(self, fleet: FleetProcess, some: Mapping[str, str], node: int = 0, transport: str = TCP) -> float:
        """Connect devices to one node, each from its own address; return the seconds that took."""
        at = self.nodes[node]
        address = at.tcp_address if transport == TCP else at.http_address
        return await fleet.open(some, [address], transport=transport, source=f"127.{10 + self.fleets.index(fleet)}")

    def execute(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows directly into the database, in one transaction."""
        with self.mariadb.connect(DATABASE) as connection, connection.cursor() as cursor:
            for start in range(0, len(rows), 5000):
                cursor.executemany(statement, rows[start : start + 5000])
            connection.commit()


def _free_ports(count: int) -> int:
    """Return the first of `count` consecutive loopback ports without a listener."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in range(first, first + count):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


@contextlib.asynccontextmanager
async def network_of(session: Session, **options: Any) -> AsyncIterator[DeviceNetwork]:
    """Run a network on the session's database, in its own directory."""
    directory = session.directory / f"network-{time.monotonic_ns()}"
    async with DeviceNetwork(directory, await session.database(), **options) as network:
        yield network
