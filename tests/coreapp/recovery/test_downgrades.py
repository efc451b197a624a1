"""Recipient who had post-quantum protection and whose new keys lack it: refused, unless the identity is another."""

from __future__ import annotations

import pytest

from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tidings import e2ee
from tidings.storage.business import identities, sessions
from tidings.wire import core
from tidings.wire import device as frames

NUMBER = "15550110001"
TEXT = b'{"type":"text","text":{"body":"hello"}}'


async def ready(world: World, **settings: object) -> tuple[Running, Phone]:
    """Start a Coreapp that has written to a phone with Kyber keys, and delete the session afterwards."""
    [phone] = world.add_phones(NUMBER)
    running = await world.start(**settings)
    await world.connected(running)
    await running.client.check(NUMBER)
    await running.client.send(NUMBER)
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    assert phone.read(world.network.sends[0].kind, world.network.sends[0].body)["type"] == "text"
    await running.stopped()
    async with world.database.transaction() as connection:
        await sessions.clear(connection, BUSINESS)
        [known] = await identities.list_identities(connection, BUSINESS, [NUMBER])
    assert known.had_kyber
    running = await world.start(**settings)
    await world.connected(running)
    return running, phone


def without_kyber(bundle: e2ee.PreKeyBundle) -> e2ee.PreKeyBundle:
    return e2ee.PreKeyBundle(
        registration_id=bundle.registration_id,
        identity_key=bundle.identity_key,
        signed_prekey_id=bundle.signed_prekey_id,
        signed_prekey=bundle.signed_prekey,
        signed_prekey_signature=bundle.signed_prekey_signature,
    )


async def test_a_message_to_keys_without_their_kyber_pre_key_fails(world: World) -> None:
    running, phone = await ready(world)
    kyber, phone.kyber = phone.kyber, None
    response = await running.client.send(NUMBER, "weaker")
    assert isinstance(response, core.Accepted)
    await world.sink.signals.until(lambda: "failed" in world.sink.statuses_of(response.id))
    [post] = [post for post in world.sink.taken() if post.label[0] == response.id]
    assert post.body["statuses"][0]["errors"][0]["code"] == 480
    assert len(world.network.sends) == 1
    # As soon as the phone has a Kyber key again, messages are sent.
    phone.kyber = kyber
    await running.client.send(NUMBER, "as before")
    await world.network.signals.until(lambda: len(world.network.sends) == 2)


async def test_a_new_identity_may_lack_a_kyber_pre_key(world: World) -> None:
    running, _ = await ready(world)
    other = Phone(NUMBER, kyber=False)
    world.network.add(other)
    await running.client.send(NUMBER, "to the new one")
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    sent = world.network.sends[1]
    assert other.read(sent.kind, sent.body)["type"] == "text"
    async with world.database.reading() as connection:
        [known] = await identities.list_identities(connection, BUSINESS, [NUMBER])
    assert not known.had_kyber


async def test_a_setting_allows_a_downgrade(world: World) -> None:
    running, phone = await ready(world, allow_pq_downgrade=True)
    phone.kyber = None
    await running.client.send(NUMBER, "weaker")
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    phone.record = None
    kind, body = phone.write(TEXT, without_kyber(world.network.business_bundle(one_time=None)))
    world.network.deliver(NUMBER, kind, id="m-1", body=body)
    await world.sink.signals.until(lambda: world.sink.statuses_of("m-1") == ["received"])


@pytest.mark.parametrize("lost", [True, False])
async def test_a_first_message_without_post_quantum_protection_is_not_read(world: World, lost: bool) -> None:
    running, phone = await ready(world)
    if not lost:
        await running.client.send(NUMBER, "again")
        await world.network.signals.until(lambda: len(world.network.sends) == 2)
    phone.record = None
    bundle = world.network.business_bundle(one_time=None)
    kind, body = phone.write(TEXT, without_kyber(bundle))
    world.network.deliver(NUMBER, kind, id="weaker", body=body)
    await world.network.signals.until(lambda: "weaker" in world.network.acknowledged)
    phone.record = None
    kind, body = phone.write(TEXT, bundle)
    assert kind == frames.PREKEY
    world.network.deliver(NUMBER, kind, id="as-before", body=body)
    await world.sink.signals.until(lambda: world.sink.statuses_of("as-before") == ["received"])
    assert world.sink.statuses_of("weaker") != ["received"]
    assert any("errors" in post.body for post in world.sink.taken())
