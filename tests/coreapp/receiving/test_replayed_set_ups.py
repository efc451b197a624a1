"""A first message that used no one-time pre-key opens a session once, even if the network repeats it later."""

from __future__ import annotations

import time

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.phones import Phone
from tests.manual_clock import ManualClock
from tidings import e2ee
from tidings.storage.business import sessions
from tidings.wire import device as frames

NUMBER = "15550110001"
OTHER = "15550110002"
SECRET = b'{"type":"text","text":{"body":"pay 100"}}'
TEXT = b'{"type":"text","text":{"body":"hi"}}'


async def acknowledged(world: World, *ids: str) -> None:
    await world.network.signals.until(lambda: set(ids) <= set(world.network.acknowledged))


def first_message(phone: Phone, business: e2ee.PreKeyBundle, content: bytes = TEXT) -> bytes:
    """Return a first message of the phone on a new session."""
    phone.record = None
    kind, body = phone.write(content, business)
    assert kind == frames.PREKEY
    return body


async def count_base_keys(connection: AsyncConnection) -> int:
    return int((await connection.execute(sa.text("SELECT COUNT(*) FROM base_keys"))).scalar_one())


async def evicted(world: World) -> tuple[Phone, bytes]:
    """Return a phone and its first message, which was received on a session that has left the archive since."""
    phone = Phone(NUMBER)
    world.network.add(phone)
    business = world.network.business_bundle(one_time=None)
    replayed = first_message(phone, business, SECRET)
    world.network.deliver(NUMBER, frames.PREKEY, id="original", body=replayed)
    await acknowledged(world, "original")
    # The archive has 10 sessions behind the current one.
    ids = [f"later-{n}" for n in range(11)]
    for id in ids:
        world.network.deliver(NUMBER, frames.PREKEY, id=id, body=first_message(phone, business))
    await acknowledged(world, *ids)
    return phone, replayed


def received(world: World) -> list[str]:
    return [id for id, status in world.sink.labels() if status == "received"]


async def test_a_replayed_first_message_is_not_read_after_its_session_was_evicted(world: World) -> None:
    running = await world.start()
    await world.connected(running)
    _, replayed = await evicted(world)
    world.network.deliver(NUMBER, frames.PREKEY, id="replay-1", body=replayed)
    await acknowledged(world, "replay-1")
    await running.stopped()
    running = await world.start(node="second")
    await world.network.signals.until(lambda: world.network.logins == 2)
    # The message is not read after a restart, nor under another sender's number.
    world.network.deliver(NUMBER, frames.PREKEY, id="replay-2", body=replayed)
    world.network.deliver(OTHER, frames.PREKEY, id="replay-3", body=replayed)
    await acknowledged(world, "replay-2", "replay-3")
    await running.stopped()
    assert sorted(received(world)) == sorted(["original", *(f"later-{n}" for n in range(11))])
    async with world.database.reading() as connection:
        assert not await sessions.list_sessions(connection, BUSINESS, [OTHER])


async def test_a_replayed_first_message_in_the_evicting_batch_is_not_read(world: World) -> None:
    running = await world.start()
    await world.connected(running)
    phone = Phone(NUMBER)
    world.network.add(phone)
    business = world.network.business_bundle(one_time=None)
    bodies = [first_message(phone, business) for _ in range(12)]
    for n, body in enumerate([*bodies, bodies[0]]):
        world.network.deliver(NUMBER, frames.PREKEY, id=f"in-{n}", body=body)
    await acknowledged(world, *(f"in-{n}" for n in range(13)))
    await running.stopped()
    assert sorted(received(world)) == sorted(f"in-{n}" for n in range(12))


async def test_base_keys_are_stored_only_for_sessions_without_a_one_time_pre_key(
    world: World,
) -> None:
    running = await world.start()
    await world.connected(running)
    phone = Phone(NUMBER)
    world.network.add(phone)
    for n, one_time in enumerate((3, None)):
        body = first_message(phone, world.network.business_bundle(one_time=one_time))
        world.network.deliver(NUMBER, frames.PREKEY, id=f"in-{n}", body=body)
        await acknowledged(world, f"in-{n}")
        async with world.database.reading() as connection:
            assert await count_base_keys(connection) == n
            assert await sessions.list_sessions(connection, BUSINESS, [NUMBER])
    await running.stopped()


async def test_base_keys_are_deleted_with_their_signed_pre_key_in_every_shard(world: World) -> None:
    clock = ManualClock(time.time())
    running = await world.start(clock=clock)
    await world.connected(running)
    phone, replayed = await evicted(world)
    maintenance = running.shard.prekey_maintenance
    # The key is in use for a week and kept for another 30 days: it is deleted at the sixth rotation.
    for _ in range(6):
        async with world.database.reading() as connection:
            assert await count_base_keys(connection) == 12
        clock.advance(7 * 24 * 3600 + 1)
        await maintenance.run_once()
    async with world.database.reading() as connection:
        assert await count_base_keys(connection) == 0
    # Simulates the memory of a shard that does not rotate keys.
    old = e2ee.PreKeySignalMessage.parse(replayed).signed_prekey_id
    assert old not in running.shard.context.device.signed_prekeys
    running.shard.context.device.signed_prekeys[old] = running.shard.context.device.signed_prekey
    phone.record = None
    world.network.deliver(NUMBER, frames.PREKEY, id="replay", body=replayed)
    await acknowledged(world, "replay")
    await running.stopped()
    assert "replay" not in received(world)
