"""The business's own pre-keys: rotated weekly, kept for a month, pruned, and numbered in 24 bits."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from coreapp.account import key_backup
from coreapp.account.prekey_maintenance import KEPT_MS, ROTATION_MS, PreKeyMaintenance
from harness.proxy import Proxy
from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, Killed, Running, World
from tests.coreapp.real_network import RealNetwork, real_network
from tests.dying import dies_at
from tidings import e2ee
from tidings.aio import crashpoints
from tidings.aio.clock import ManualClock
from tidings.client.errors import NetworkUnreached
from tidings.storage.business import accounts, shards
from tidings.storage.business.accounts import OwnPreKey
from tidings.storage.network import directory, prekeys
from tidings.wire import core

WEEK, MONTH = ROTATION_MS / 1000, KEPT_MS / 1000


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the service: the test runs each pass, so that none runs when it sets the clock."""

    async def run(maintenance: PreKeyMaintenance, stop: asyncio.Event) -> None:
        await stop.wait()

    monkeypatch.setattr(PreKeyMaintenance, "run", run)


async def start(world: World, network: RealNetwork, clock: ManualClock) -> Running:
    return await world.start(clock=clock, network_tcp=network.tcp, network_http=network.http)


async def rows(world: World) -> list[OwnPreKey]:
    async with world.database.reading() as connection:
        return list(await accounts.list_prekeys(connection, BUSINESS))


def of_kind(found: list[OwnPreKey], kind: str) -> list[int]:
    return [key.key_id for key in found if key.kind == kind]


async def at_the_network(network: RealNetwork) -> tuple[int, int | None]:
    """Return the ids of the signed and the Kyber pre-key at the network."""
    async with network.database.reading() as connection:
        found = (await directory.list_registrations(connection, [BUSINESS]))[BUSINESS]
    return found.signed_prekey_id, found.kyber_prekey_id


@pytest.mark.usefixtures("by_hand")
async def test_lasting_keys_are_replaced_weekly_and_old_ones_go_after_a_month(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    clock = ManualClock(time.time())
    async with real_network(world, database_factory, tmp_path) as network:
        running = await start(world, network, clock)
        maintenance, device = running.shard.prekey_maintenance, running.shard.context.device
        first = await at_the_network(network)
        await maintenance.run_once()
        assert await at_the_network(network) == first
        clock.advance(WEEK + 600)
        await maintenance.run_once()
        second = await at_the_network(network)
        assert second[0] not in first
        assert second == (device.signed_prekey.key_id, device.kyber_prekey.key_id)
        assert set(device.signed_prekeys) == {first[0], second[0]}
        for _ in range(4):
            clock.advance(WEEK)
            await maintenance.run_once()
            assert first[0] in device.signed_prekeys
        clock.advance(WEEK)
        await maintenance.run_once()
        assert first[0] not in device.signed_prekeys
        assert first[1] not in device.kyber_prekeys
        kept = await rows(world)
        assert of_kind(kept, accounts.SIGNED) == list(device.signed_prekeys)
        assert of_kind(kept, accounts.KYBER) == list(device.kyber_prekeys)
        assert len(device.signed_prekeys) == 6
        await running.stopped()


@pytest.mark.usefixtures("by_hand")
async def test_one_time_kyber_keys_are_at_the_network_each_once_and_go_a_month_after_they_were_handed_out(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    clock = ManualClock(time.time())
    async with real_network(world, database_factory, tmp_path) as network:
        running = await start(world, network, clock)
        maintenance, device = running.shard.prekey_maintenance, running.shard.context.device
        # A number of the previous release has no one-time Kyber pre-keys, and the network does not notify it.
        await maintenance.run_once()
        await maintenance.run_once()
        async with network.database.reading() as connection:
            _, ids = await prekeys.list_ids(connection, BUSINESS)
        assert len(ids) == len(device.kyber_one_time) == 100
        assert of_kind(await rows(world), accounts.KYBER_ONE_TIME) == ids
        taken = []
        for _ in range(2):
            async with network.database.transaction() as connection:
                _, found = await prekeys.take_one_each(connection, [BUSINESS])
            taken.append(found[BUSINESS].key_id)
        assert taken == ids[:2]
        clock.advance(WEEK + 600)
        await maintenance.run_once()
        kept = [key for key in await rows(world) if key.kind == accounts.KYBER_ONE_TIME]
        assert [key.key_id for key in kept if key.retired_at] == taken
        clock.advance(MONTH + WEEK + 600)
        await maintenance.run_once()
        assert of_kind(await rows(world), accounts.KYBER_ONE_TIME) == list(device.kyber_one_time) == ids[2:]
        # Few of one kind are left: 100 more are made, and none of the other kind.
        before = len(device.prekeys)
        maintenance.low(99, 3)
        await maintenance.run_once()
        assert (len(device.kyber_one_time), len(device.prekeys)) == (198, before)
        await running.stopped()


@pytest.mark.usefixtures("by_hand")
async def test_one_time_kyber_keys_that_were_stored_and_not_uploaded_are_replaced_at_the_next_start(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    clock = ManualClock(time.time())
    async with real_network(world, database_factory, tmp_path) as network:
        way = Proxy.to(network.http)
        await way.start()
        running = await world.start(clock=clock, network_tcp=network.tcp, network_http=way.url)
        await way.stop()
        with pytest.raises(NetworkUnreached):
            await running.shard.prekey_maintenance.run_once()
        await running.stopped()
        assert len(of_kind(await rows(world), accounts.KYBER_ONE_TIME)) == 100
        again = await start(world, network, clock)
        await again.shard.prekey_maintenance.run_once()
        async with network.database.reading() as connection:
            _, ids = await prekeys.list_ids(connection, BUSINESS)
        assert len(ids) == 100
        await again.shard.prekey_maintenance.run_once()
        async with network.database.reading() as connection:
            assert (await prekeys.list_ids(connection, BUSINESS))[1] == ids, "uploaded once"
        clock.advance(WEEK + 600)
        await again.shard.prekey_maintenance.run_once()
        kept = [key for key in await rows(world) if key.kind == accounts.KYBER_ONE_TIME]
        assert [key.key_id for key in kept if not key.retired_at] == ids
        await again.stopped()


@pytest.mark.usefixtures("by_hand")
async def test_one_time_keys_that_were_handed_out_and_never_used_go_after_a_month(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    clock = ManualClock(time.time())
    async with real_network(world, database_factory, tmp_path) as network:
        running = await start(world, network, clock)
        maintenance, device = running.shard.prekey_maintenance, running.shard.context.device
        async with network.database.transaction() as connection:
            ordinary, _ = await prekeys.take_one_each(connection, [BUSINESS])
        taken = ordinary[BUSINESS].key_id
        clock.advance(WEEK + 600)
        await maintenance.run_once()
        retired = [key.key_id for key in await rows(world) if key.kind == accounts.ONE_TIME and key.retired_at]
        assert retired == [taken]
        clock.advance(MONTH - 600)
        await maintenance.run_once()
        assert taken in device.prekeys
        clock.advance(WEEK + 600)
        await maintenance.run_once()
        assert taken not in device.prekeys
        assert taken not in of_kind(await rows(world), accounts.ONE_TIME)
        # The pre-keys that the network still has are kept, however old they are.
        assert len(device.prekeys) == 99
        await running.stopped()


@pytest.mark.usefixtures("by_hand")
async def test_a_rotation_that_dies_before_its_upload_is_finished_by_the_next_owner(
    world: World, database_factory: DatabaseFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(time.time())
    async with real_network(world, database_factory, tmp_path) as network:
        running = await start(world, network, clock)
        before = await at_the_network(network)
        clock.advance(WEEK + 600)
        dies_at(monkeypatch, crashpoints.AFTER_KEYS_BEFORE_UPLOAD, Killed("after the keys"))
        with pytest.raises(Killed):
            await running.shard.prekey_maintenance.run_once()
        made = running.shard.context.device.signed_prekey.key_id
        assert await at_the_network(network) == before
        await running.stopped()
        again = await start(world, network, clock)
        await again.shard.prekey_maintenance.run_once()
        assert (await at_the_network(network))[0] == made
        assert all(key.uploaded for key in await rows(world))
        await again.stopped()


@pytest.mark.usefixtures("by_hand")
async def test_keys_are_uploaded_again_until_the_network_has_them(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    clock = ManualClock(time.time())
    async with real_network(world, database_factory, tmp_path) as network:
        way = Proxy.to(network.http)
        await way.start()
        running = await world.start(clock=clock, network_tcp=network.tcp, network_http=way.url)
        maintenance, device = running.shard.prekey_maintenance, running.shard.context.device
        clock.advance(WEEK + 600)
        await way.stop()
        for _ in range(3):
            with pytest.raises(NetworkUnreached):
                await maintenance.run_once()
        await way.start()
        await maintenance.run_once()
        assert len(device.signed_prekeys) == 2
        assert (await at_the_network(network))[0] == device.signed_prekey.key_id
        await running.stopped()
        await way.stop()


@pytest.mark.usefixtures("by_hand")
async def test_an_owner_that_has_lost_its_lease_makes_no_keys(world: World) -> None:
    clock = ManualClock(time.time())
    running = await world.start(clock=clock)
    context = running.shard.context
    late = dataclasses.replace(context.lease, epoch=context.lease.epoch - 1)
    maintenance = PreKeyMaintenance(context.database, late, context.device, network=context.network, clock=clock)
    before = await rows(world)
    maintenance.low(3, 3)
    with pytest.raises(shards.LeaseLost):
        await maintenance.run_once()
    clock.advance(WEEK + 600)
    with pytest.raises(shards.LeaseLost):
        await maintenance.run_once()
    assert await rows(world) == before
    assert not world.network.uploads


async def test_ids_go_round_at_24_bits_and_pass_over_those_that_are_kept(world: World) -> None:
    running = await world.start()
    maintenance, device = running.shard.prekey_maintenance, running.shard.context.device
    # The uploads of the start.
    await world.network.signals.until(lambda: len(world.network.uploads) == 1)
    kept = set(device.prekeys) | set(device.signed_prekeys) | set(device.kyber_prekeys) | set(device.kyber_one_time)
    device.next_key_id = e2ee.MAX_KEY_ID - 49
    maintenance.low(3, 90)
    await world.network.signals.until(lambda: len(world.network.uploads) == 2)
    uploaded = [key["key_id"] for key in world.network.uploads[-1]["prekeys"]]
    assert uploaded[:50] == list(range(e2ee.MAX_KEY_ID - 49, e2ee.MAX_KEY_ID + 1))
    assert min(uploaded[50:]) == max(kept) + 1
    async with world.database.reading() as connection:
        found = await accounts.find_account(connection, BUSINESS)
    assert found is not None
    assert found.next_key_id == uploaded[-1] + 1


def test_free_ids_are_refused_when_there_are_none() -> None:
    class Everything:
        def __len__(self) -> int:
            return e2ee.MAX_KEY_ID

        def __contains__(self, key_id: object) -> bool:
            return True

        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(ValueError, match="too many"):
        e2ee.free_key_ids(1, 1, Everything())


async def test_keys_that_another_shard_has_used_leave_memory_and_come_into_no_backup(world: World) -> None:
    running = await world.start()
    maintenance, device = running.shard.prekey_maintenance, running.shard.context.device
    first, second, *others = device.prekeys

    async def used_elsewhere(key_id: int) -> None:
        async with world.database.transaction() as connection:
            await accounts.delete_prekeys(connection, BUSINESS, accounts.ONE_TIME, [key_id])

    await used_elsewhere(first)
    exported = await running.client.ask(lambda n: core.ExportKeys(n, BUSINESS, "password"))
    kept = key_backup.open_keys(exported.data, "password").prekeys
    assert [key.key_id for key in kept if key.kind == accounts.ONE_TIME] == [second, *others]
    await used_elsewhere(second)
    await maintenance.run_once()
    assert list(device.prekeys) == others
