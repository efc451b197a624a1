"""Health of the databases: both are asked, and what cannot be learnt of the network is left to its link."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from coreapp.shard.health import Databases
from tests.conftest import DatabaseFactory
from tidings.client.http import NetworkApi


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


@pytest.fixture
async def told() -> AsyncIterator[tuple[str, dict[str, str]]]:
    """The health of a network: its address, and what it says."""
    says = {"database": "ok"}

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(says, status=200 if says["database"] == "ok" else 503)

    application = web.Application()
    application.router.add_get("/health", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}", says
    await runner.cleanup()


async def test_the_network_says_that_its_database_is_away(
    database_factory: DatabaseFactory, told: tuple[str, dict[str, str]]
) -> None:
    url, says = told
    async with NetworkApi(url) as network:
        databases = Databases(await database_factory("business"), network)
        assert await databases.are_alive()
        says["database"] = "away"
        assert not await databases.are_alive()
        says["database"] = "ok"
        assert await databases.are_alive()


@pytest.mark.parametrize("path", ["http://127.0.0.1:1", "{told}/elsewhere"])
async def test_a_network_that_does_not_say_is_not_held_against_its_database(
    database_factory: DatabaseFactory, told: tuple[str, dict[str, str]], path: str
) -> None:
    async with NetworkApi(path.format(told=told[0])) as network:
        databases = Databases(await database_factory("business"), network)
        assert await databases.are_alive()
