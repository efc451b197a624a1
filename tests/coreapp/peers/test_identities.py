"""Recipient with new keys: reported to the business, and written to again once the business has acknowledged
them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Any

import pytest

from coreapp.sending import transmission
from tests.coreapp import webhook_schemas
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.scripted_network import HOLD
from tidings.storage.business import identities
from tidings.storage.business.callbacks import Callback
from tidings.wire import core
from tidings.wire import device as frames

NUMBER, OTHER = "15550110001", "15550110002"


def hash_of(phone: Phone) -> str:
    return base64.b64encode(hashlib.sha256(phone.identity.public).digest()[:8]).decode()


async def identity(running: Running, number: str = NUMBER) -> Any:
    return await running.client.call(lambda n: core.GetIdentity(n, BUSINESS, number))


async def acknowledge(running: Running, digest: str, number: str = NUMBER) -> Any:
    return await running.client.call(lambda n: core.AcknowledgeIdentity(n, BUSINESS, number, digest))


async def set_security(world: World, running: Running, on: bool) -> None:
    await world.configure(show_security_notifications=on)
    assert isinstance(await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS)), core.Done)


async def started(world: World, *, security: bool = True, **settings: Any) -> tuple[Running, Phone]:
    """Start a Coreapp that has written to a phone once."""
    await world.configure(show_security_notifications=security)
    (phone,) = world.add_phones(NUMBER)
    running = await world.start(**settings)
    await world.connected(running)
    await running.client.check(NUMBER)
    assert isinstance(await running.client.send(NUMBER, "to the first phone"), core.Accepted)
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    phone.read(world.network.sends[0].kind, world.network.sends[0].body)
    return running, phone


async def anew(world: World, id: str = "identity.1", *, told: bool = True) -> Phone:
    """Register the recipient again with other keys. The network sends an identity notice.

    told: False for a notice that does not contain the new key.
    """
    (phone,) = world.add_phones(NUMBER)
    world.network.deliver(NUMBER, frames.IDENTITY, id=id, body=phone.identity.public if told else b"")
    await world.network.signals.until(lambda: id in world.network.acknowledged)
    return phone


def posted(world: World) -> list[dict[str, Any]]:
    """Return the messages that the webhook got, in order, after checking each against its schema."""
    bodies = [post.body for post in world.sink.taken() if "messages" in post.body]
    for body in bodies:
        webhook_schemas.check(body)
    return [body["messages"][0] for body in bodies]


async def test_a_changed_identity_is_reported_and_blocks_until_acknowledged(world: World) -> None:
    running, first = await started(world)
    found = await identity(running)
    assert (found.hash, found.acknowledged) == (hash_of(first), True)

    second = await anew(world)
    await world.sink.signals.until(lambda: len(posted(world)) == 1)
    (told,) = posted(world)
    found = await identity(running)
    assert (found.hash, found.acknowledged) == (hash_of(second), False)
    assert told == {
        "from": NUMBER,
        "id": told["id"],
        "timestamp": str(found.created_at // 1000),
        "type": "system",
        "system": {
            "type": "user_identity_changed",
            "body": f"User {NUMBER} may have changed: the keys are new",
            "identity": hash_of(second),
        },
        "identity": {"acknowledged": False, "created_timestamp": found.created_at, "hash": hash_of(second)},
    }
    refused = await running.client.send(NUMBER)
    assert (refused.code, refused.retry_after) == (1028, 0)
    for wrong in (hash_of(first), "", "AAAAAAAAAAA="):
        assert (await acknowledge(running, wrong)).code == 1009
    assert (await running.client.send(NUMBER)).code == 1028

    assert isinstance(await acknowledge(running, hash_of(second)), core.Done)
    assert (await identity(running)).acknowledged
    assert isinstance(await running.client.send(NUMBER, "to the second phone"), core.Accepted)
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    send = world.network.sends[1]
    assert second.read(send.kind, send.body)["text"] == {"body": "to the second phone"}
    # A repetition changes nothing.
    assert isinstance(await acknowledge(running, hash_of(second)), core.Done)


async def test_without_security_notifications_a_change_is_acknowledged_automatically(world: World) -> None:
    running, _ = await started(world, security=False)
    second = await anew(world)
    assert isinstance(await running.client.send(NUMBER, "on"), core.Accepted)
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    send = world.network.sends[1]
    assert second.read(send.kind, send.body)["text"] == {"body": "on"}
    found = await identity(running)
    assert (found.hash, found.acknowledged) == (hash_of(second), True)
    assert posted(world) == []


async def test_an_identity_change_is_posted_before_the_message_that_revealed_it(world: World) -> None:
    running, _ = await started(world)
    (second,) = world.add_phones(NUMBER)
    kind, body = second.write(b'{"type":"text","text":{"body":"me"}}', world.network.business_bundle())
    world.network.deliver(NUMBER, kind, id="in-1", body=body)
    await world.sink.signals.until(lambda: len(posted(world)) == 2)
    told, message = posted(world)
    assert told["system"]["identity"] == hash_of(second)
    assert message["text"] == {"body": "me"}
    assert message["identity"] == told["identity"]
    assert (await running.client.send(NUMBER)).code == 1028
    # The network's own notice of the same keys comes later.
    world.network.deliver(NUMBER, frames.IDENTITY, id="identity.1", body=second.identity.public)
    await world.network.signals.until(lambda: "identity.1" in world.network.acknowledged)
    assert isinstance(await acknowledge(running, hash_of(second)), core.Done)
    assert isinstance(await running.client.send(NUMBER, "you"), core.Accepted)
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    send = world.network.sends[1]
    # It uses the session that the recipient opened.
    assert send.kind == frames.MESSAGE
    assert second.read(send.kind, send.body)["text"] == {"body": "you"}
    assert len(world.network.fetches) == 1
    assert len(posted(world)) == 2


async def test_a_message_waiting_for_pre_keys_fails_if_the_identity_is_new(world: World) -> None:
    running, _ = await started(world)
    # A network of another release does not send the new key in the notice. The bundle contains it.
    second = await anew(world, told=False)
    gate = world.network.gates[frames.Fetch] = asyncio.Event()
    message = (await running.client.send(NUMBER)).id
    await world.network.signals.until(lambda: len(world.network.fetches) == 2)
    gate.set()
    await world.sink.signals.until(lambda: world.sink.statuses_of(message) == ["failed"])
    await world.sink.signals.until(lambda: len(posted(world)) == 1)
    (failed,) = [post.body["statuses"][0] for post in world.sink.taken() if (message, "failed") == post.label]
    assert (failed["errors"][0]["code"], failed["errors"][0]["title"]) == (480, "User potentially changed")
    assert (await running.client.send(NUMBER)).code == 1028
    assert isinstance(await acknowledge(running, hash_of(second)), core.Done)
    assert isinstance(await running.client.send(NUMBER, "new"), core.Accepted)
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    send = world.network.sends[1]
    assert second.read(send.kind, send.body)["text"] == {"body": "new"}


async def test_messages_waiting_for_pre_keys_fail_when_an_identity_change_arrives(world: World) -> None:
    running, _ = await started(world)
    await anew(world, told=False)
    gate = world.network.gates[frames.Fetch] = asyncio.Event()
    waiting = [(await running.client.send(NUMBER, str(n))).id for n in range(3)]
    await world.network.signals.until(lambda: len(world.network.fetches) == 2)
    third = await anew(world, "identity.2")
    await world.sink.signals.until(lambda: all(world.sink.statuses_of(id) == ["failed"] for id in waiting))
    gate.set()
    assert isinstance(await acknowledge(running, hash_of(third)), core.Done)
    assert isinstance(await running.client.send(NUMBER, "new"), core.Accepted)
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    send = world.network.sends[1]
    assert third.read(send.kind, send.body)["text"] == {"body": "new"}


@pytest.mark.parametrize("security", [True, False])
async def test_unsent_messages_encrypted_for_the_old_identity_fail(
    world: World, monkeypatch: pytest.MonkeyPatch, security: bool
) -> None:
    monkeypatch.setattr(transmission, "WINDOW", 2)
    running, _ = await started(world, security=security)
    world.network.policy = lambda send: HOLD
    ids = [(await running.client.send(NUMBER, str(n))).id for n in range(5)]
    await world.network.signals.until(lambda: len(world.network.sends) == 3)
    await anew(world)
    await world.sink.signals.until(lambda: all(world.sink.statuses_of(id) == ["failed"] for id in ids[2:]))
    codes = [post.body["statuses"][0]["errors"][0]["code"] for post in world.sink.taken() if post.label[1] == "failed"]
    assert codes == [480, 480, 480]
    # Messages that were sent already are for the network to accept or refuse.
    world.network.accept(*ids[:2])
    await world.sink.signals.until(lambda: all(world.sink.statuses_of(id) == ["sent"] for id in ids[:2]))
    assert len(world.network.sends) == 3


async def test_messages_possibly_sent_by_an_earlier_owner_are_resent_for_any_identity(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transmission, "WINDOW", 1)
    running, _ = await started(world)
    world.network.policy = lambda send: HOLD
    ids = [(await running.client.send(NUMBER, str(n))).id for n in range(2)]
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    await running.killed()
    again = await world.start(node="second", owned=False)
    await world.owner(again)
    await world.network.signals.until(lambda: world.network.ids_sent().count(ids[0]) == 2)
    await anew(world)
    world.network.policy = lambda send: None
    world.network.accept(ids[0])
    await world.sink.signals.until(lambda: all(world.sink.statuses_of(id) == ["sent"] for id in ids))


async def test_an_identity_change_is_reported_once_and_blocks_across_a_restart(world: World) -> None:
    running, _ = await started(world)
    second = await anew(world)
    await world.sink.signals.until(lambda: len(posted(world)) == 1)
    await running.stopped()
    again = await world.start(node="second")
    await world.connected(again)
    # Repeated by a network that did not receive our acknowledgement.
    world.network.deliver(NUMBER, frames.IDENTITY, id="identity.2", body=second.identity.public)
    await world.network.signals.until(lambda: "identity.2" in world.network.acknowledged)
    assert (await again.client.send(NUMBER)).code == 1028
    assert not (await identity(again)).acknowledged
    await set_security(world, again, False)
    assert isinstance(await again.client.send(NUMBER), core.Accepted)
    assert (await identity(again)).acknowledged
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    assert len(posted(world)) == 1


async def test_an_identity_change_callback_can_be_marked_as_read(world: World) -> None:
    running, _ = await started(world)
    await anew(world)
    await world.sink.signals.until(lambda: len(posted(world)) == 1)
    (told,) = posted(world)
    assert isinstance(await running.client.call(lambda n: core.MarkRead(n, BUSINESS, told["id"])), core.Done)
    assert (await running.client.call(lambda n: core.MarkRead(n, BUSINESS, "gBEI"))).code == 1006
    assert [send.kind for send in world.network.sends if send.kind == frames.READ] == []


async def test_turning_notifications_off_acknowledges_changes_permanently(world: World) -> None:
    running, _ = await started(world)
    await anew(world)
    await set_security(world, running, False)
    await set_security(world, running, True)
    assert isinstance(await running.client.send(NUMBER), core.Accepted)
    await running.stopped()
    async with world.database.reading() as connection:
        assert await identities.list_unacknowledged(connection, BUSINESS, after="", limit=10) == []


async def test_notifications_turned_off_during_a_stop_acknowledge_changes(world: World) -> None:
    running, _ = await started(world)
    await anew(world)
    await running.stopped()
    await world.configure(show_security_notifications=False)
    again = await world.start(node="second")
    assert (await identity(again)).acknowledged


async def test_an_identity_change_blocks_messages_even_beyond_the_cache_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coreapp.peers.identities.LIMIT", 0)
    running, _ = await started(world)
    (second,) = world.add_phones(NUMBER)
    kind, body = second.write(b'{"type":"text","text":{"body":"me"}}', world.network.business_bundle())
    world.network.deliver(NUMBER, kind, id="in-1", body=body)
    await world.sink.signals.until(lambda: len(posted(world)) == 2)
    before = (await running.client.send(NUMBER)).id
    await world.sink.signals.until(lambda: world.sink.statuses_of(before) == ["failed"])
    await running.stopped()
    owner = await world.start(node="second")
    await world.connected(owner)
    after = (await owner.client.send(NUMBER)).id
    await world.sink.signals.until(lambda: world.sink.statuses_of(after) == ["failed"])
    world.add_phones(OTHER)
    await owner.client.check(OTHER)
    assert isinstance(await owner.client.send(OTHER), core.Accepted)
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    assert isinstance(await acknowledge(owner, hash_of(second)), core.Done)
    assert isinstance(await owner.client.send(NUMBER, "you"), core.Accepted)
    await world.network.signals.until(lambda: len(world.network.sends) == 3)


async def test_identity_changes_are_detected_after_a_key_restore(world: World) -> None:
    running, _ = await started(world)
    data = (await running.client.call(lambda n: core.ExportKeys(n, BUSINESS, "password"))).data
    (second,) = world.add_phones(NUMBER)
    restored = await running.client.call(lambda n: core.RestoreKeys(n, BUSINESS, "password", data))
    assert isinstance(restored, core.Done)
    await world.owner(running)
    await world.connected(running)
    message = (await running.client.send(NUMBER)).id
    await world.sink.signals.until(lambda: world.sink.statuses_of(message) == ["failed"])
    await world.sink.signals.until(lambda: len(posted(world)) == 1)
    assert posted(world)[0]["system"]["identity"] == hash_of(second)
    # A message that waits for its acknowledgement still waits after a restoration of keys.
    restored = await running.client.call(lambda n: core.RestoreKeys(n, BUSINESS, "password", data))
    assert isinstance(restored, core.Done)
    await world.owner(running)
    assert (await running.client.send(NUMBER)).code == 1028


async def test_the_identity_of_a_new_contact_is_fetched_once(world: World) -> None:
    (phone,) = world.add_phones(NUMBER)
    running = await world.start(check_unknown=False)
    await world.connected(running)
    refused = await identity(running)
    assert (refused.code, refused.details) == (1006, "unknown contact")
    assert (await acknowledge(running, hash_of(phone))).code == 1006
    await running.client.check(NUMBER, OTHER)
    for _ in range(2):
        found = await identity(running)
        assert (found.hash, found.acknowledged) == (hash_of(phone), True)
    assert world.network.fetches == [[NUMBER]]
    assert (await identity(running, OTHER)).code == 1006


async def test_keys_fetched_before_an_identity_notice_do_not_count_as_a_change(world: World) -> None:
    running, _ = await started(world)
    world.add_phones(OTHER)
    await running.client.check(OTHER)
    before = len(world.network.fetches)
    gate = world.network.gates[frames.Fetch] = asyncio.Event()
    call = asyncio.create_task(identity(running, OTHER))
    await world.network.signals.until(lambda: len(world.network.fetches) > before)
    (second,) = world.add_phones(OTHER)
    world.network.deliver(OTHER, frames.IDENTITY, id="identity.1", body=second.identity.public)
    await world.network.signals.until(lambda: "identity.1" in world.network.acknowledged)
    gate.set()
    found = await call
    assert (found.hash, found.acknowledged) == (hash_of(second), True)
    assert posted(world) == []


async def test_an_unknown_identity_gets_1011_while_the_network_is_unavailable(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    world.network.away()
    await world.network.signals.until(lambda: world.network.live is None)
    refused = await identity(running)
    assert (refused.code, refused.retry_after) == (1011, 1)


async def test_a_notice_with_the_current_identity_keeps_the_session(world: World) -> None:
    running, phone = await started(world)
    kind, body = phone.write(b'{"type":"text","text":{"body":"hi"}}')
    world.network.deliver(NUMBER, kind, id="in-1", body=body)
    world.network.deliver(NUMBER, frames.IDENTITY, id="identity.1", body=phone.identity.public)
    await world.network.signals.until(lambda: "identity.1" in world.network.acknowledged)
    assert isinstance(await running.client.send(NUMBER), core.Accepted)
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    assert world.network.sends[1].kind == frames.MESSAGE
    assert len(world.network.fetches) == 1
    (message,) = posted(world)
    assert message["identity"]["hash"] == hash_of(phone)


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_number_change_is_reported_if_configured(world: World, wanted: bool) -> None:
    await world.configure(notify_user_change_number=wanted)
    (phone,) = world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    system = b'{"type":"system","system":{"type":"user_changed_number","new_wa_id":"15550110002","body":"moved"}}'
    for id, content in (("in-1", system), ("in-2", b'{"type":"text","text":{"body":"hi"}}')):
        kind, body = phone.write(content, world.network.business_bundle())
        world.network.deliver(NUMBER, kind, id=id, body=body)
    await world.sink.signals.until(lambda: ("in-2", "received") in world.sink.labels())
    await world.network.signals.until(lambda: len(world.network.acknowledged) == 2)
    if wanted:
        await world.sink.signals.until(lambda: ("in-1", "received") in world.sink.labels())
    assert [message["type"] for message in posted(world)].count("system") == wanted
    assert all("identity" not in message for message in posted(world))


async def test_a_changed_identity_is_reported_before_the_repeated_message_that_it_came_with(world: World) -> None:
    running, first = await started(world)
    kind, body = first.write(b'{"type":"text","text":{"body":"settled"}}')
    world.network.deliver(NUMBER, kind, id="settled", body=body)
    world.network.deliver(NUMBER, frames.MESSAGE, id="lost", body=b"\x33garbage")
    await world.network.signals.until(lambda: {"settled", "lost"} <= set(world.network.acknowledged))
    # The request for a repetition follows the fetch of the first phone's bundle.
    await world.network.signals.until(lambda: any(send.kind == frames.RETRY for send in world.network.sends))
    (second,) = world.add_phones(NUMBER)
    made: list[Callback] = []
    running.shard.context.journal.on_callbacks(made.extend)
    content = b'{"type":"text","text":{"body":"again"}}'
    kind, body = second.write(content, world.network.business_bundle(one_time=None))
    world.network.deliver(NUMBER, kind, id="again", body=body, refs=["lost"])
    await world.network.signals.until(lambda: "again" in world.network.acknowledged)
    # Callbacks of one subject are posted in their order.
    assert [b"user_identity_changed" in callback.body for callback in made] == [True, False]
    assert {callback.subject for callback in made} == {"lost"}
