"""A registration whose process dies between the network's commit and ours is completed by the next owner."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, Killed, Running, World
from tests.coreapp.real_network import RealNetwork, real_network
from tests.coreapp.signals import TIMEOUT, soon
from tests.coreapp.test_with_the_network import NUMBER, LivePhone
from tests.simulated_crashes import dies_at
from tidings.aio import crashpoints
from tidings.storage.business import registrations, shards
from tidings.storage.network import directory, prekeys
from tidings.wire import connection as wire
from tidings.wire import core
from tidings.wire import device as frames

PASSWORD = "under seal"
POINT = crashpoints.AFTER_REGISTRATION_BEFORE_COMMIT


@pytest.fixture
def die(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the owner die after its next registration is committed at the network."""
    dies_at(monkeypatch, POINT, Killed(POINT))


async def start(world: World, network: RealNetwork, *, owned: bool = True, auto_register: bool = True) -> Running:
    return await world.start(
        network_tcp=network.tcp, network_http=network.http, owned=owned, auto_register=auto_register
    )


async def died(world: World, running: Running) -> None:
    """Wait until the process is dead, and expire its lease."""
    async with asyncio.timeout(TIMEOUT):
        with pytest.raises(Killed):
            await running.task
    async with world.database.transaction() as connection:
        await connection.execute(shards.table.update().values(heartbeat_at=0))


async def left_at_the_network(network: RealNetwork) -> tuple[bytes, int]:
    """Return the business's identity key at the network, and the number of its remaining one-time pre-keys."""
    async with network.database.reading() as connection:
        found = await directory.list_registrations(connection, [BUSINESS])
        counts = await prekeys.count_left(connection, [BUSINESS])
    return found[BUSINESS].identity_key, counts[BUSINESS].prekeys


async def a_message_comes_and_goes(world: World, network: RealNetwork, running: Running) -> None:
    """Send a message to the business with the keys that the network has now, and read it with the keys that we
    have."""
    phone = LivePhone(NUMBER)
    phone.token = await network.register(phone)
    connection = await wire.connect(*network.tcp, frames.FromNetwork, phone)
    found = await running.client.check("+" + NUMBER)
    while found[0].status == "failed":
        # The Coreapp has not logged in yet.
        found = await running.client.check("+" + NUMBER)
    accepted = await running.client.send(NUMBER, "hello")
    await world.sink.signals.until(lambda: f"echo-{accepted.id}" in {post.label[0] for post in world.sink.taken()})
    connection.close("test")


@pytest.mark.usefixtures("die")
async def test_a_first_registration_killed_before_its_commit_is_completed(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    async with real_network(world, database_factory, tmp_path) as network:
        await died(world, await start(world, network, owned=False))
        before = await left_at_the_network(network)
        running = await start(world, network)
        assert await left_at_the_network(network) == before
        assert running.shard.context.device.identity.public == before[0]
        await a_message_comes_and_goes(world, network, running)
        await running.stopped()


@pytest.mark.usefixtures("die")
async def test_a_code_registration_killed_before_its_commit_needs_no_second_code(
    world: World, database_factory: DatabaseFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with real_network(world, database_factory, tmp_path) as network:
        first = await start(world, network, owned=False, auto_register=False)
        await soon(lambda: first.node.requests.waits_for_code)
        await first.client.call(lambda n: core.RequestCode(n, BUSINESS))
        code = next(record.__dict__["code"] for record in caplog.records if record.message == "code.issued")
        await first.client.call(lambda n: core.VerifyCode(n, BUSINESS, code))
        await world.owner(first)
        await a_message_comes_and_goes(world, network, first)
        await first.stopped()


@pytest.mark.usefixtures("die")
async def test_a_wrong_code_leaves_nothing_behind(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    async with real_network(world, database_factory, tmp_path) as network:
        running = await start(world, network, owned=False, auto_register=False)
        await soon(lambda: running.node.requests.waits_for_code)
        response = await running.client.call(lambda n: core.VerifyCode(n, BUSINESS, "000000"))
        assert response.code == 1009
        async with world.database.reading() as connection:
            assert await registrations.find_pending(connection, BUSINESS) is None
        await running.stopped()


async def test_a_restore_killed_before_its_commit_is_completed(
    world: World, database_factory: DatabaseFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with real_network(world, database_factory, tmp_path) as network:
        first = await start(world, network)
        response = await first.client.call(lambda n: core.ExportKeys(n, BUSINESS, PASSWORD))
        backup, identity = response.data, first.shard.context.device.identity.public
        await first.stopped()
        await _forget_registration(world)
        second = await start(world, network)
        assert second.shard.context.device.identity.public != identity
        dies_at(monkeypatch, POINT, Killed(POINT))
        call = asyncio.create_task(second.client.call(lambda n: core.RestoreKeys(n, BUSINESS, PASSWORD, backup)))
        await died(world, second)
        call.cancel()
        third = await start(world, network)
        assert third.shard.context.device.identity.public == identity
        assert (await left_at_the_network(network))[0] == identity
        await a_message_comes_and_goes(world, network, third)
        await third.stopped()


async def _forget_registration(world: World) -> None:
    """Delete the account and its pre-keys, as in another installation."""
    async with world.database.transaction() as connection:
        for table in ("accounts", "own_prekeys"):
            await connection.execute(sa.text(f"DELETE FROM {table}"))
