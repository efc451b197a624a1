"""The business's own pre-keys: rotated weekly, kept for a month, pruned, and numbered in 24 bits."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa

from coreapp.account import key_backup
from coreapp.account.own_device import OwnDevice
from coreapp.account.prekey_maintenance import KEPT_MS, ROTATION_MS, PreKeyMaintenance
from harness.proxy import Proxy
from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, Killed, Running, World
from tests.coreapp.real_network import RealNetwork, real_network
from tests.manual_clock import ManualClock
from tests.simulated_crashes import dies_at
from tidings import e2ee
from tidings.aio import crashpoints
from tidings.client.errors import NetworkUnreached
from tidings.storage.business import accounts, shards
from tidings.storage.business.accounts import OwnPreKey
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory, prekeys
from tidings.wire import core

WEEK, MONTH = ROTATION_MS / 1000, KEPT_MS / 1000


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the service: the test runs each pass, so that none runs when it sets the clock."""

    async def run(maintenance: PreKeyMaintenance, stop: asyncio.Event) -> None:
        await stop.wait()

    monkeypatch.setattr(PreKeyMaintenance, "run", run)


@dataclasses.dataclass
class Scene:
    """Coreapp on a real network, whose HTTP API it reaches through `way`. The test runs the passes."""

    world: World
    network: RealNetwork
    way: Proxy
    clock: ManualClock
    running: Running

    @property
    def device(self) -> OwnDevice:
        return self.running.shard.context.device

    async def run_once(self) -> None:
        """Run a pass of the maintenance."""
        await self.running.shard.prekey_maintenance.run_once()

    async def restart(self) -> None:
        """Stop the Coreapp, and start another one on its database."""
        await self.running.stopped()
        self.running = await start(self.world, self.network, self.way, self.clock)

    async def kept(self, kind: str) -> list[OwnPreKey]:
        """Return the stored pre-keys of a kind."""
        return [key for key in await rows(self.world) if key.kind == kind]

    async def lasting_at_network(self) -> tuple[int, int | None]:
        """Return the ids of the signed and the Kyber pre-key at the network."""
        async with self.network.database.reading() as connection:
            found = (await directory.list_registrations(connection, [BUSINESS]))[BUSINESS]
        return found.signed_prekey_id, found.kyber_prekey_id

    async def kyber_at_network(self) -> list[int]:
        """Return the ids of the one-time Kyber pre-keys at the network."""
        async with self.network.database.reading() as connection:
            return list((await prekeys.list_ids(connection, BUSINESS))[1])

    async def take_one_each(self) -> tuple[int, int | None]:
        """Take a one-time pre-key of each kind from the network, as a sender does. Returns their ids; `None` if the
        network has no Kyber pre-key.
        """
        async with self.network.database.transaction() as connection:
            ordinary, kyber = await prekeys.take_one_each(connection, [BUSINESS])
        return ordinary[BUSINESS].key_id, kyber[BUSINESS].key_id if BUSINESS in kyber else None


async def start(world: World, network: RealNetwork, way: Proxy, clock: ManualClock) -> Running:
    return await world.start(clock=clock, network_tcp=network.tcp, network_http=way.url)


async def rows(world: World) -> list[OwnPreKey]:
    async with world.database.reading() as connection:
        return list(await accounts.list_prekeys(connection, BUSINESS))


def ids(found: list[OwnPreKey]) -> list[int]:
    return [key.key_id for key in found]


@pytest.fixture
async def scene(world: World, database_factory: DatabaseFactory, tmp_path: Path, by_hand: None) -> AsyncIterator[Scene]:
    clock = ManualClock(time.time())
    async with real_network(world, database_factory, tmp_path) as network:
        way = Proxy.to(network.http)
        await way.start()
        scene = Scene(world, network, way, clock, await start(world, network, way, clock))
        yield scene
        await scene.running.stopped()
        await way.stop()


async def test_signed_and_kyber_pre_keys_rotate_weekly_and_are_deleted_after_a_month(scene: Scene) -> None:
    device = scene.device
    first = await scene.lasting_at_network()
    await scene.run_once()
    assert await scene.lasting_at_network() == first
    scene.clock.advance(WEEK + 600)
    await scene.run_once()
    second = await scene.lasting_at_network()
    assert second[0] not in first
    assert second == (device.signed_prekey.key_id, device.kyber_prekey.key_id)
    assert set(device.signed_prekeys) == {first[0], second[0]}
    for _ in range(4):
        scene.clock.advance(WEEK)
        await scene.run_once()
        assert first[0] in device.signed_prekeys
    scene.clock.advance(WEEK)
    await scene.run_once()
    assert first[0] not in device.signed_prekeys
    assert first[1] not in device.kyber_prekeys
    assert ids(await scene.kept(accounts.SIGNED)) == list(device.signed_prekeys)
    assert ids(await scene.kept(accounts.KYBER)) == list(device.kyber_prekeys)
    assert len(device.signed_prekeys) == 6


async def test_one_time_kyber_pre_keys_are_uploaded_once_and_deleted_a_month_after_handout(
    scene: Scene,
) -> None:
    device = scene.device
    # A number of the previous release has no one-time Kyber pre-keys, and the network does not notify it.
    await scene.run_once()
    await scene.run_once()
    uploaded = await scene.kyber_at_network()
    assert len(uploaded) == len(device.kyber_one_time) == 100
    assert ids(await scene.kept(accounts.KYBER_ONE_TIME)) == uploaded
    taken = [(await scene.take_one_each())[1] for _ in range(2)]
    assert taken == uploaded[:2]
    scene.clock.advance(WEEK + 600)
    await scene.run_once()
    assert [key.key_id for key in await scene.kept(accounts.KYBER_ONE_TIME) if key.retired_at] == taken
    scene.clock.advance(MONTH + WEEK + 600)
    await scene.run_once()
    assert ids(await scene.kept(accounts.KYBER_ONE_TIME)) == list(device.kyber_one_time) == uploaded[2:]
    # Few of one kind are left: 100 more are made, and none of the other kind.
    before = len(device.prekeys)
    scene.running.shard.prekey_maintenance.low(99, 3)
    await scene.run_once()
    assert (len(device.kyber_one_time), len(device.prekeys)) == (198, before)


async def test_one_time_kyber_keys_that_were_stored_and_not_uploaded_are_replaced_at_the_next_start(
    scene: Scene,
) -> None:
    await scene.way.stop()
    with pytest.raises(NetworkUnreached):
        await scene.run_once()
    await scene.way.start()
    await scene.restart()
    assert len(await scene.kept(accounts.KYBER_ONE_TIME)) == 100
    assert await scene.kyber_at_network() == []
    await scene.run_once()
    uploaded = await scene.kyber_at_network()
    assert len(uploaded) == 100
    await scene.run_once()
    assert await scene.kyber_at_network() == uploaded, "uploaded once"
    scene.clock.advance(WEEK + 600)
    await scene.run_once()
    assert [key.key_id for key in await scene.kept(accounts.KYBER_ONE_TIME) if not key.retired_at] == uploaded


async def test_retries_upload_the_same_one_time_pre_keys(scene: Scene) -> None:
    scene.running.shard.prekey_maintenance.low(3, 3)
    before = len(await scene.kept(accounts.ONE_TIME))
    await scene.way.stop()
    for _ in range(3):
        with pytest.raises(NetworkUnreached):
            await scene.run_once()
    stored = ids(await scene.kept(accounts.KYBER_ONE_TIME))
    assert len(stored) == 100
    assert len(await scene.kept(accounts.ONE_TIME)) == before + 100
    await scene.way.start()
    await scene.run_once()
    assert await scene.kyber_at_network() == stored
    assert len(await scene.kept(accounts.ONE_TIME)) == before + 100
    # The next request for keys is served by new ones.
    scene.running.shard.prekey_maintenance.low(99, 3)
    await scene.run_once()
    assert len(await scene.kyber_at_network()) == 200


async def test_unused_handed_out_one_time_pre_keys_are_deleted_after_a_month(scene: Scene) -> None:
    device = scene.device
    taken, _ = await scene.take_one_each()
    scene.clock.advance(WEEK + 600)
    await scene.run_once()
    assert [key.key_id for key in await scene.kept(accounts.ONE_TIME) if key.retired_at] == [taken]
    scene.clock.advance(MONTH - 600)
    await scene.run_once()
    assert taken in device.prekeys
    scene.clock.advance(WEEK + 600)
    await scene.run_once()
    assert taken not in device.prekeys
    assert taken not in ids(await scene.kept(accounts.ONE_TIME))
    # The pre-keys that the network still has are kept, however old they are.
    assert len(device.prekeys) == 99


async def test_the_next_owner_finishes_a_rotation_killed_before_its_upload(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await scene.lasting_at_network()
    scene.clock.advance(WEEK + 600)
    dies_at(monkeypatch, crashpoints.AFTER_KEYS_BEFORE_UPLOAD, Killed("after the keys"))
    with pytest.raises(Killed):
        await scene.run_once()
    made = scene.device.signed_prekey.key_id
    assert await scene.lasting_at_network() == before
    await scene.restart()
    await scene.run_once()
    assert (await scene.lasting_at_network())[0] == made
    assert all(key.uploaded for key in await rows(scene.world))


async def test_pre_key_uploads_are_retried_until_the_network_has_them(scene: Scene) -> None:
    scene.clock.advance(WEEK + 600)
    await scene.way.stop()
    for _ in range(3):
        with pytest.raises(NetworkUnreached):
            await scene.run_once()
    await scene.way.start()
    await scene.run_once()
    assert len(scene.device.signed_prekeys) == 2
    assert (await scene.lasting_at_network())[0] == scene.device.signed_prekey.key_id


@pytest.mark.usefixtures("by_hand")
async def test_an_owner_without_its_lease_creates_no_pre_keys(world: World) -> None:
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


async def test_pre_key_ids_wrap_at_24_bits_and_skip_used_ones(world: World) -> None:
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


def test_free_key_ids_raises_valueerror_without_free_ids() -> None:
    class Everything:
        def __len__(self) -> int:
            return e2ee.MAX_KEY_ID

        def __contains__(self, key_id: object) -> bool:
            return True

        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(ValueError, match="too many"):
        e2ee.free_key_ids(1, 1, Everything())


async def test_pre_keys_used_by_another_shard_leave_memory_and_backups(world: World) -> None:
    running = await world.start()
    maintenance, device = running.shard.prekey_maintenance, running.shard.context.device
    first, second, *others = device.prekeys

    async def used_elsewhere(key_id: int) -> None:
        async with world.database.transaction() as connection:
            await accounts.delete_prekeys(connection, BUSINESS, accounts.ONE_TIME, [key_id])

    await used_elsewhere(first)
    exported = await running.client.call(lambda n: core.ExportKeys(n, BUSINESS, "password"))
    kept = key_backup.open_keys(exported.data, "password").prekeys
    assert [key.key_id for key in kept if key.kind == accounts.ONE_TIME] == [second, *others]
    await used_elsewhere(second)
    await maintenance.run_once()
    assert list(device.prekeys) == others


async def test_new_pre_keys_are_uploaded_when_the_outcome_of_their_commit_is_unknown(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.run_once()
    first = await scene.lasting_at_network()
    scene.clock.advance(WEEK + 600)
    transaction, left = Database.transaction, [True]

    @contextlib.asynccontextmanager
    async def lossy(self: Database, **options: Any) -> AsyncIterator[Connection]:
        async with transaction(self, **options) as connection:
            yield connection
        if left and options.get("about") == "keys":
            left.clear()
            raise sa.exc.OperationalError("COMMIT", {}, pymysql.err.OperationalError(2013, "Lost connection"))

    monkeypatch.setattr(Database, "transaction", lossy)
    await scene.run_once()
    assert not left
    second = await scene.lasting_at_network()
    assert second[0] != first[0]
    assert second == (scene.device.signed_prekey.key_id, scene.device.kyber_prekey.key_id)


async def test_deleted_pre_keys_leave_memory_when_the_outcome_of_their_deletion_is_unknown(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = scene.device.signed_prekey.key_id
    for _ in range(5):
        scene.clock.advance(WEEK + 600)
        await scene.run_once()
    delete, left = accounts.delete_retired, [True]

    async def lossy(connection: Connection, account: str, before: int) -> Any:
        found = await delete(connection, account, before)
        if found and left:
            left.clear()
            await connection.commit()
            raise sa.exc.OperationalError("COMMIT", {}, pymysql.err.OperationalError(2013, "Lost connection"))
        return found

    monkeypatch.setattr(accounts, "delete_retired", lossy)
    scene.clock.advance(WEEK + 600)
    await scene.run_once()
    assert not left
    await scene.run_once()
    assert first not in ids(await scene.kept(accounts.SIGNED))
    assert first not in scene.device.signed_prekeys
    assert ids(await scene.kept(accounts.KYBER)) == list(scene.device.kyber_prekeys)
