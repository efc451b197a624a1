"""Network for benchmarks: one node, or several with Redis, on a private MariaDB, and fleets of devices."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import resource
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from benchmarks.rig.sampler import Sampler
from benchmarks.rig.session import Session
from harness.fleet_device import TCP
from harness.fleet_process import FleetProcess
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


@dataclasses.dataclass(slots=True)
class Node:
    """One network process."""

    process: Process
    http: str
    http_address: tuple[str, int]
    tcp_address: tuple[str, int]

    @property
    def pid(self) -> int:
        assert self.process.pid is not None, f"{self.process.name} is gone: {self.process.last_words()}"
        return self.process.pid

    @property
    def cpu(self) -> float:
        """Return the CPU seconds used so far."""
        return usage(self.pid).cpu

    @property
    def memory(self) -> int:
        """Return the bytes that are unique to this process (USS)."""
        return int(psutil.Process(self.pid).memory_full_info().uss)


def numbers(count: int, block: int = 0) -> list[str]:
    """Return numbers for devices; each block has a million."""
    return [f"{PREFIX}{block}{index:06}" for index in range(count)]


def most_connections() -> int:
    """Return how many connections one process can hold here."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1] - FILES


class DeviceNetwork:
    """Network as an asynchronous context manager, which removes everything but the database server at its end.

    settings: environment variables of every node, in addition to those of the harness; limits are off
    """

    def __init__(
        self, directory: Path, mariadb: MariaDB, *, nodes: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.mariadb = mariadb
        self._redis = RedisServer() if nodes > 1 else None
        self.nodes: list[Node] = []
        self.fleets: list[FleetProcess] = []
        self._count = nodes
        self._settings = dict(settings or {})

    async def __aenter__(self) -> Self:
        self.directory.mkdir(exist_ok=True)
        with self.mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
            cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        if self._redis is not None:
            await asyncio.to_thread(self._redis.start)
        for index in range(self._count):
            await self._start(index)
        return self

    async def __aexit__(self, *error: object) -> None:
        for fleet in self.fleets:
            await fleet.close()
        await asyncio.gather(*(node.process.stop() for node in self.nodes), return_exceptions=True)
        if self._redis is not None:
            await asyncio.to_thread(self._redis.remove)

    async def _start(self, index: int) -> None:
        http, tcp = free_port(), free_port()
        variables = {
            "TIDINGS_DATA_DIR": str(self.directory / f"node-{index}"),
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
            variables |= {"TIDINGS_REDIS_URL": self._redis.url, "TIDINGS_NETWORK_NODE": f"node-{index}"}
        (self.directory / f"node-{index}").mkdir(exist_ok=True)
        process = Process(f"network{index or ''}", "network", variables, self.directory)
        await process.start()
        self.nodes.append(Node(process, f"http://127.0.0.1:{http}", ("127.0.0.1", http), ("127.0.0.1", tcp)))

    async def register(self, some: Sequence[str]) -> dict[str, str]:
        """Register these numbers; return their tokens."""
        return await register(self.nodes[0].http, KEY, some)

    async def fleet(self, name: str = "") -> FleetProcess:
        """Start another process for devices."""
        fleet = FleetProcess(name or f"fleet-{len(self.fleets)}", self.directory)
        await fleet.start()
        self.fleets.append(fleet)
        return fleet

    def pids(self) -> dict[str, int]:
        """Return the process ids of all processes but this one, by name."""
        found = {node.process.name: node.process.pid for node in self.nodes}
        found |= {fleet.name: fleet.pid for fleet in self.fleets}
        found |= {"mariadbd": self.mariadb.pid, "redis": self._redis.pid if self._redis is not None else None}
        return {name: pid for name, pid in found.items() if pid is not None}

    def metrics(self) -> dict[str, str]:
        """Return the Prometheus text of each node. Blocks."""
        found = {}
        for node in self.nodes:
            request = urllib.request.Request(f"{node.http}/metrics", headers={"Authorization": f"Apikey {API_KEY}"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                found[node.process.name] = answer.read().decode()
        return found

    def sampler(self) -> Sampler:
        """Return a sampler of all processes."""
        return Sampler(self.pids, metrics=self.metrics, mariadb=self.mariadb)

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


@contextlib.asynccontextmanager
async def network_of(session: Session, **options: Any) -> AsyncIterator[DeviceNetwork]:
    """Run a network on the session's database, in its own directory."""
    directory = session.directory / f"network-{time.monotonic_ns()}"
    async with DeviceNetwork(directory, await session.database(), **options) as network:
        yield network
