"""Fixtures for the network: every transport and both databases; `--nodes 2` runs two processes."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator

import pytest

from harness import database_server
from harness.mariadb import MariaDB
from harness.redis_server import RedisServer
from network.devices import locks
from tests.conftest import DatabaseFactory
from tests.network.support import Network
from tidings.installation.settings import DatabaseSettings
from tidings.secrets.hash_pool import HashPool

# Not every pair: that would double the time and find nothing more, as no code depends on both transport and database.
PAIRS = [("tcp", "mariadb"), ("tcp", "sqlite"), ("json", "sqlite"), ("msgpack", "sqlite")]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("network")
    group.addoption("--nodes", type=int, default=1, help="of the network, over a Redis of the tests' own")


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """Redis server for all tests of this run."""
    server = RedisServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def nodes(request: pytest.FixtureRequest) -> int:
    """Number of network processes. The option is missing when tests of other packages run too."""
    if request.node.get_closest_marker("one_node") is not None:
        return 1
    return int(request.config.getoption("--nodes", 1))


@pytest.fixture(params=PAIRS, ids=lambda pair: "-".join(pair))
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Transport of the devices and kind of database."""
    transport, database = request.param
    return transport, database


@pytest.fixture
def transport(pair: tuple[str, str]) -> str:
    return pair[0]


@pytest.fixture
def database_engine(pair: tuple[str, str]) -> str:
    return pair[1]


@pytest.fixture
async def network(
    request: pytest.FixtureRequest, database_factory: DatabaseFactory, transport: str, nodes: int
) -> AsyncIterator[Network]:
    """Network that the test starts with `await network.start()`."""
    database = await database_factory("network")
    redis = request.getfixturevalue("redis").url if nodes > 1 else ""
    network = Network(database.settings, transport, nodes=nodes, redis=redis)
    yield network
    await network.remove()


@pytest.fixture
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash PINs of locks with little memory, for tests of many PINs."""
    monkeypatch.setattr(locks, "HashPool", functools.partial(HashPool, memory_kib=8))


@pytest.fixture
async def killable_network() -> AsyncIterator[tuple[Network, MariaDB]]:
    """Network on its own MariaDB server, which the test may kill."""
    server = database_server.make(buffer_pool_mb=32)
    await asyncio.to_thread(server.start)
    network = Network(DatabaseSettings(server.url("mortal")), "tcp")
    yield network, server
    await network.remove()
    await asyncio.to_thread(server.remove)
