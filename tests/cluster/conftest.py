"""Nodes of the network as real processes, on one MariaDB and one Redis."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from harness import database_server, polling
from harness.mariadb import MariaDB, free_port
from harness.processes import Process
from harness.redis_server import RedisCluster, RedisServer
from tidings.installation.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.database import Database

KEY = "the registration key of these tests"
OPERATOR_KEY = "a key of twenty chars"
# Seconds for events that take a second or two on an idle machine.
TIMEOUT = 30.0


@dataclasses.dataclass
class NetworkNode:
    """One process, or the parent of several workers."""

    process: Process
    http: str
    tcp: tuple[str, int]

    async def health(self, path: str = "/health") -> tuple[int, dict[str, Any]]:
        async with aiohttp.ClientSession() as session, session.get(self.http + path) as response:
            return response.status, await response.json()

    async def becomes(self, **fields: object) -> None:
        """Wait until the node's health has these values."""

        async def is_so() -> bool:
            _, said = await self.health()
            return all(said.get(name) == value for name, value in fields.items())

        await polling.until(is_so, seconds=TIMEOUT)

    @property
    def fork_server(self) -> psutil.Process:
        """The process below the parent of several workers that forks them."""
        (server,) = psutil.Process(self.process.pid).children()
        return server

    @property
    def workers(self) -> list[psutil.Process]:
        """The workers, without those that have ended."""
        children: list[psutil.Process] = self.fork_server.children()
        return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]


StartNode = Callable[..., Awaitable[NetworkNode]]


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    server = database_server.make(flush_log=0)
    server.start()
    yield server
    server.remove()


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def redis_cluster() -> Iterator[RedisCluster]:
    cluster = RedisCluster()
    cluster.start()
    yield cluster
    cluster.remove()


@pytest.fixture
async def start_node(mariadb: MariaDB, tmp_path: Path) -> AsyncIterator[StartNode]:
    """Function that starts nodes: `await start_node(redis.url, VARIABLE="…")`. All stop at the end."""
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS nodes")
        cursor.execute("CREATE DATABASE nodes CHARACTER SET utf8mb4")
    database = Database(DatabaseSettings(mariadb.url("nodes")), "network")
    await schema.prepare(database, migrate=True)
    await database.close()
    started: list[Process] = []

    async def start(redis_url: str, **variables: str) -> NetworkNode:
        name = f"network-{len(started)}"
        ports = free_port(), free_port()
        environment: Mapping[str, str] = {
            "TIDINGS_DATA_DIR": str(tmp_path),
            "TIDINGS_NETWORK_DB_URL": mariadb.url("nodes"),
            "TIDINGS_REGISTRATION_KEY": KEY,
            "TIDINGS_OPERATOR_KEY": OPERATOR_KEY,
            "TIDINGS_REDIS_URL": redis_url,
            "TIDINGS_NETWORK_NODE": name,
            "TIDINGS_NETWORK_HTTP_ADDRESS": f"127.0.0.1:{ports[0]}",
            "TIDINGS_NETWORK_TCP_ADDRESS": f"127.0.0.1:{ports[1]}",
            "TIDINGS_NETWORK_DRAIN_S": "1",
            **variables,
        }
        process = Process(name, "network", environment, tmp_path)
        started.append(process)
        await process.start()
        return NetworkNode(process, f"http://127.0.0.1:{ports[0]}", ("127.0.0.1", ports[1]))

    yield start
    await asyncio.gather(*[process.stop() for process in started])
