"""The network under test: every transport, and between them both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conftest import DatabaseFactory
from tests.network.support import Network

# All pairs would double the time and find nothing more: transport and database meet nowhere.
PAIRS = [("tcp", "mariadb"), ("tcp", "sqlite"), ("json", "sqlite"), ("msgpack", "sqlite")]


@pytest.fixture(params=PAIRS, ids=lambda pair: "-".join(pair))
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The transport of devices and the kind of database."""
    transport, database = request.param
    return transport, database


@pytest.fixture
def transport(pair: tuple[str, str]) -> str:
    return pair[0]


@pytest.fixture
def database_engine(pair: tuple[str, str]) -> str:
    return pair[1]


@pytest.fixture
async def network(database_factory: DatabaseFactory, transport: str) -> AsyncIterator[Network]:
    """A network process that the test starts with `await network.start()`."""
    database = await database_factory("network")
    network = Network(database.settings, transport)
    yield network
    await network.remove()
