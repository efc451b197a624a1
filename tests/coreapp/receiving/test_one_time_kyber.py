"""A one-time Kyber pre-key of the business opens one session, and is deleted in the commit of that session."""

from __future__ import annotations

import base64
import dataclasses

from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.phones import Phone
from tidings import e2ee
from tidings.storage.business import accounts, sessions
from tidings.wire import device as frames

NUMBER, OTHER, THIRD = "15550110001", "15550110002", "15550110003"
TEXT = b'{"type":"text","text":{"body":"hi"}}'


async def bundles(world: World) -> list[e2ee.PreKeyBundle]:
    """Return bundles of the business without a one-time pre-key, each with another one-time Kyber pre-key."""
    await world.network.signals.until(lambda: bool(world.network.uploads))
    plain = world.network.business_bundle(one_time=None)
    return [
        dataclasses.replace(
            plain,
            kyber_prekey_id=key["key_id"],
            kyber_prekey=base64.b64decode(key["public"]),
            kyber_prekey_signature=base64.b64decode(key["signature"]),
        )
        for key in world.network.uploads[0]["kyber_prekeys"]
    ]


async def acknowledged(world: World, *ids: str) -> None:
    await world.network.signals.until(lambda: set(ids) <= set(world.network.acknowledged))


async def kept(world: World) -> set[int]:
    async with world.database.reading() as connection:
        return set(await accounts.list_one_time_ids(connection, BUSINESS, accounts.KYBER_ONE_TIME))


def first_message(phone: Phone, bundle: e2ee.PreKeyBundle) -> bytes:
    phone.record = None
    return phone.write(TEXT, bundle)[1]


async def test_a_one_time_kyber_pre_key_opens_one_session_and_is_deleted(world: World) -> None:
    running = await world.start()
    await world.connected(running)
    found = await bundles(world)
    assert len({bundle.kyber_prekey_id for bundle in found}) == 100
    phone, other, third = Phone(NUMBER), Phone(OTHER), Phone(THIRD)
    world.network.add(phone, other, third)
    first = first_message(phone, found[0])
    world.network.deliver(NUMBER, frames.PREKEY, id="first", body=first)
    await acknowledged(world, "first")
    assert found[0].kyber_prekey_id not in await kept(world)
    assert len(await kept(world)) == 99
    # A second message with the same key is not read. Of two messages that name one key at once, at most one is read.
    world.network.deliver(OTHER, frames.PREKEY, id="second", body=first_message(other, found[0]))
    for phone_, id in ((other, "one"), (third, "two")):
        body = first_message(phone_, found[1])
        world.network.deliver(phone_.number, frames.PREKEY, id=id, body=body)
    await acknowledged(world, "second", "one", "two")
    await running.stopped()
    received = {id for id, status in world.sink.labels() if status == "received"}
    assert "first" in received
    assert "second" not in received
    async with world.database.reading() as connection:
        assert len(await sessions.list_sessions(connection, BUSINESS, [OTHER, THIRD])) <= 1
    assert len(await kept(world)) == 98


async def test_a_one_time_kyber_pre_key_works_after_a_restart_and_beside_an_ordinary_one(world: World) -> None:
    running = await world.start()
    await world.connected(running)
    found = await bundles(world)
    await running.stopped()
    running = await world.start(node="second")
    await world.network.signals.until(lambda: world.network.logins == 2)
    phone = Phone(NUMBER)
    world.network.add(phone)
    ordinary = world.network.business_bundle(one_time=5)
    both = dataclasses.replace(found[3], prekey_id=ordinary.prekey_id, prekey=ordinary.prekey)
    world.network.deliver(NUMBER, frames.PREKEY, id="in-1", body=first_message(phone, both))
    await acknowledged(world, "in-1")
    await running.stopped()
    assert ("in-1", "received") in world.sink.labels()
    assert both.kyber_prekey_id not in await kept(world)
    async with world.database.reading() as connection:
        assert both.prekey_id not in await accounts.list_one_time_ids(connection, BUSINESS)
