"""Another client registers the business's number: the Coreapp takes it back once a day, and otherwise reports it."""

from __future__ import annotations

import logging
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import REGISTRY

from tests.conftest import DatabaseFactory
from tests.coreapp.account.test_registration import a_message_comes_and_goes, left_at_the_network, start
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.real_network import RealNetwork, real_network
from tests.coreapp.signals import soon
from tests.coreapp.test_with_the_network import NUMBER
from tests.network.support import registration
from tidings.wire import core


async def take_over(network: RealNetwork) -> None:
    """Register the business's number as a client that has the registration key."""
    body = registration(BUSINESS, prekeys=1, kyber=False)
    headers = {"Authorization": f"Bearer {network.registration_key}"}
    async with (
        aiohttp.ClientSession(network.http) as client,
        client.post("/v1/registrations", json=body, headers=headers) as response,
    ):
        assert response.status == 201, await response.text()


async def until_connected(running: Running) -> None:
    await soon(lambda: running.node.owned.is_set() and running.shard.link.connected)


async def test_a_number_taken_over_is_registered_again_with_its_keys(
    world: World, database_factory: DatabaseFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with real_network(world, database_factory, tmp_path) as network:
        running = await start(world, network)
        await until_connected(running)
        identity, _ = await left_at_the_network(network)
        await take_over(network)
        assert (await left_at_the_network(network))[0] != identity
        await soon(lambda: "account.registered_again" in caplog.messages)
        await until_connected(running)
        assert (await left_at_the_network(network))[0] == identity
        await a_message_comes_and_goes(world, network, running)
        await running.stopped()


async def test_a_second_takeover_is_reported_and_messages_are_refused(
    world: World, database_factory: DatabaseFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with real_network(world, database_factory, tmp_path) as network:
        running = await start(world, network)
        await until_connected(running)
        await take_over(network)
        await soon(lambda: "account.registered_again" in caplog.messages)
        await until_connected(running)
        await take_over(network)
        await soon(lambda: bool(running.node.shards) and running.shard.link.is_refused)
        health = await running.client.call(core.GetHealth)
        assert (health.gateway_status, health.elsewhere) == ("unregistered", True)
        refused = await running.client.send(NUMBER)
        assert (refused.code, refused.retry_after) == (1011, 5)
        assert "registered elsewhere" in refused.details
        assert REGISTRY.get_sample_value("tidings_registered_elsewhere", {"shard": "0", "number": BUSINESS}) == 1.0
        assert caplog.messages.count("account.registered_again") == 1
        await running.stopped()
        # After investigating, the operator restarts the Coreapp, which takes the number back.
        running = await start(world, network)
        await soon(lambda: caplog.messages.count("account.registered_again") == 2)
        await until_connected(running)
        assert not (await running.client.call(core.GetHealth)).elsewhere
        await running.stopped()
