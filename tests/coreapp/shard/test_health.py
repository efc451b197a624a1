"""Health of the databases: both are checked, and an unknown state of the network is left to its link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from coreapp.shard.health import CoreappNeeds, Databases
from coreapp.shard.open_shards import OpenShards
from tests.conftest import DatabaseFactory
from tests.web_server import serving
from tidings.client.http import NetworkApi


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


@pytest.fixture
async def told() -> AsyncIterator[tuple[str, dict[str, str]]]:
    """Yield the URL of a network's health endpoint, and the response that it gives."""
    says = {"database": "ok"}

    async def respond(request: web.Request) -> web.Response:
        return web.json_response(says, status=200 if says["database"] == "ok" else 503)

    application = web.Application()
    application.router.add_get("/health", respond)
    async with serving(application) as url:
        yield url, says


async def test_health_reports_an_outage_of_the_network_s_database(
    database_factory: DatabaseFactory, told: tuple[str, dict[str, str]]
) -> None:
    url, says = told
    async with NetworkApi(url) as network:
        databases = Databases(await database_factory("business"), network, cached_seconds=0.0)
        assert await databases.away() == []
        says["database"] = "away"
        assert await databases.away() == ["database"]
        says["database"] = "ok"
        assert await databases.away() == []


async def test_the_network_is_polled_at_most_once_per_period(
    database_factory: DatabaseFactory, told: tuple[str, dict[str, str]]
) -> None:
    url, says = told
    async with NetworkApi(url) as network:
        databases = Databases(await database_factory("business"), network, cached_seconds=60.0)
        assert await asyncio.gather(*(databases.away() for _ in range(20))) == [[]] * 20
        says["database"] = "away"
        assert await databases.away() == []


@pytest.mark.parametrize("path", ["http://127.0.0.1:1", "{told}/elsewhere"])
async def test_an_unknown_state_of_the_network_s_database_counts_as_available(
    database_factory: DatabaseFactory, told: tuple[str, dict[str, str]], path: str
) -> None:
    async with NetworkApi(path.format(told=told[0])) as network:
        databases = Databases(await database_factory("business"), network)
        assert await databases.away() == []


class Mounted:
    """File store with its marker."""

    state = "ok"


async def test_an_unresponsive_network_and_our_own_database_count_as_away(
    database_factory: DatabaseFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def away() -> bool:
        return False

    monkeypatch.setattr("coreapp.shard.health.TIMEOUT", 0.1)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with NetworkApi(f"http://127.0.0.1:{port}") as network:
            database = await database_factory("business")
            needs = CoreappNeeds(Databases(database, network), OpenShards(), Mounted())
            assert await needs.check() == {"database": "ok", "network": "away", "media": "ok"}
            monkeypatch.setattr(database, "is_alive", away)
            assert await needs.check() == {"database": "away", "network": "away", "media": "ok"}
