"""Groups, from the Coreapp's link to people's phones, over our own network."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import DatabaseFactory
from tests.coreapp import media_scene, webhook_schemas
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.group_scene import ANN, BEN, CAT, DISTRIBUTION, Member, Scene, group_scene
from tests.coreapp.signals import soon
from tests.database_triggers import refused_rows
from tidings import e2ee
from tidings.aio.clock import SystemClock
from tidings.storage.business import jobs, messages, quarantine
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.messages import MessageRow, Status
from tidings.wire import core
from tidings.wire import device as frames
from tidings.wire.ids import MessageIds


@pytest.fixture
async def scene(world: World, database_factory: DatabaseFactory, tmp_path: Path) -> AsyncIterator[Scene]:
    async with group_scene(world, database_factory, tmp_path) as scene:
        yield scene
        for post in world.sink.posts:
            webhook_schemas.check(post.body)


def texts(member: Member) -> list[str]:
    return [text for _, text in member.shown]


async def test_a_group_message_is_encrypted_once_and_read_by_every_participant(scene: Scene) -> None:
    group = await scene.create()
    ann, ben = await scene.joined(group, ANN, BEN)
    message = await scene.sent(group, "first")
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 5)
    assert texts(ann) == texts(ben) == ["first"]
    assert (ann.keys, ben.keys) == (1, 1)
    statuses = scene.statuses(message)
    assert statuses[0] == ("sent", group, None)
    for member in (ANN, BEN):
        assert [s for s in statuses if s[1] == member] == [("delivered", member, group), ("read", member, group)]
    second = await scene.sent(group, "second")
    await scene.until_webhook(lambda: len(scene.statuses(second)) == 5)
    assert (ann.keys, ben.keys) == (1, 1)
    assert ann.shown == ben.shown == [(message, "first"), (second, "second")]


async def test_without_a_webhook_group_statuses_beyond_the_limit_are_dropped(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    await world.configure(webhooks={"url": ""})
    world.settings = world.settings.model_copy(update={"callback_queue_limit": 3})
    async with group_scene(world, database_factory, tmp_path) as scene:
        group = await scene.create()
        ann, ben = [await scene.member(number) for number in (ANN, BEN)]
        await ann.join(group)
        await ben.join(group)
        shard = scene.running.shard
        # The creation of the group and the two joins.
        await soon(lambda: len(shard.webhook.queue) == 3)
        await scene.sent(group)
        await soon(lambda: shard.webhook.admission.dropped == 5)
        assert len(shard.webhook.queue) == 3


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_old_distribution_id_is_replaced_by_a_version_4_uuid_after_a_restart(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    group = await scene.create()
    (ann,) = await scene.joined(group, ANN)
    if restarted:
        with monkeypatch.context() as before:
            before.setattr(uuid, "uuid4", lambda: uuid.UUID(bytes=DISTRIBUTION))
            first = await scene.sent(group, "of before")
            await scene.until_webhook(lambda: len(scene.statuses(first)) == 3)
        assert ann.business_key is not None
        assert ann.business_key.distribution_id == DISTRIBUTION
        await scene.restart()
    message = await scene.sent(group, "hello")
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 3)
    assert texts(ann) == (["of before"] if restarted else []) + ["hello"]
    assert ann.business_key is not None
    made = uuid.UUID(bytes=ann.business_key.distribution_id)
    assert (made.version, made.variant) == (4, uuid.RFC_4122)


async def test_group_messages_keep_their_order_while_the_first_sender_key_is_in_flight(scene: Scene) -> None:
    group = await scene.create()
    ann, ben = await scene.joined(group, ANN, BEN)
    sent = [await scene.sent(group, str(n)) for n in range(20)]
    await scene.until_webhook(lambda: all(len(scene.statuses(message)) == 5 for message in sent))
    assert ann.shown == ben.shown == [(message, str(n)) for n, message in enumerate(sent)]
    assert (ann.keys, ben.keys) == (1, 1)


async def test_group_messages_with_ids_of_several_clocks_keep_the_order_of_acceptance(scene: Scene) -> None:
    group = await scene.create()
    (ann,) = await scene.joined(group, ANN)
    now = SystemClock().now_ms()
    ahead, behind = MessageIds(lambda: now + 1_000), MessageIds(lambda: now)
    sent = [webapp.new() for webapp in (ahead, behind, ahead, behind)]

    async def send(place: int, message: str) -> None:
        content = json.dumps({"type": "text", "text": {"body": str(place)}}).encode()
        response = await scene.call(
            lambda n: core.AcceptMessage(n, BUSINESS, group, "text", content, recipient_type="group", id=message)
        )
        assert isinstance(response, core.Accepted), response

    # All of them wait for the sender key to arrive.
    await asyncio.gather(*(send(place, message) for place, message in enumerate(sent)))
    await scene.until_webhook(lambda: all(len(scene.statuses(message)) == 3 for message in sent))
    assert texts(ann) == ["0", "1", "2", "3"]


async def test_a_message_to_an_empty_group_is_sent_and_the_next_is_read(scene: Scene) -> None:
    group = await scene.create()
    alone = await scene.sent(group, "anybody there?")
    await scene.until_webhook(lambda: scene.statuses(alone) == [("sent", group, None)])
    (ann,) = await scene.joined(group, ANN)
    message = await scene.sent(group, "welcome")
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 3)
    assert texts(ann) == ["welcome"]


@pytest.mark.parametrize("before", ["nobody has joined", "everybody has left"])
async def test_a_message_right_after_an_unannounced_join_is_read(scene: Scene, before: str) -> None:
    """The network has recorded the join; its notice has not arrived."""
    group = await scene.create()
    shown = []
    if before == "everybody has left":
        (ann,) = await scene.joined(group, ANN)
        first = await scene.sent(group, "first")
        await scene.until_webhook(lambda: len(scene.statuses(first)) == 3)
        shown = ["first"]
        await ann.call("DELETE", f"/{group}")
        await scene.until_joined(group, without=(ANN,))
    else:
        ann = await scene.member(ANN)
    events = scene.running.shard.receiving
    deliver = events.delivered
    events.delivered = (  # type: ignore[method-assign]
        lambda delivery: None if delivery.kind == frames.GROUP_CHANGED else deliver(delivery)
    )
    await ann.join(group)
    message = await scene.sent(group, "welcome")
    await scene.until_webhook(lambda: ("sent", group, None) in scene.statuses(message))
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 3)
    assert texts(ann) == [*shown, "welcome"]
    assert ann.lost == []


async def test_a_new_member_gets_the_sender_key_and_reads_later_messages(scene: Scene) -> None:
    group = await scene.create()
    (ann,) = await scene.joined(group, ANN)
    first = await scene.sent(group, "before")
    await scene.until_webhook(lambda: len(scene.statuses(first)) == 3)
    (ben,) = await scene.joined(group, BEN)
    second = await scene.sent(group, "after")
    await scene.until_webhook(lambda: len(scene.statuses(second)) == 5)
    assert texts(ann) == ["before", "after"]
    assert texts(ben) == ["after"]
    assert (ann.keys, ben.keys, ben.lost) == (1, 1, [])


@pytest.mark.parametrize("how", ["leaves", "is removed"])
async def test_a_departure_replaces_the_sender_key(scene: Scene, how: str) -> None:
    group = await scene.create()
    ann, ben = await scene.joined(group, ANN, BEN)
    first = await scene.sent(group, "all of us")
    await scene.until_webhook(lambda: len(scene.statuses(first)) == 5)
    if how == "leaves":
        await ben.call("DELETE", f"/{group}")
    else:
        assert isinstance(await scene.change(group, core.REMOVE, numbers=[BEN]), core.Done)
    await scene.until_joined(group, ANN, without=(BEN,))
    second = await scene.sent(group, "without Ben")
    await scene.until_webhook(lambda: len(scene.statuses(second)) == 3)
    assert texts(ann) == ["all of us", "without Ben"]
    assert texts(ben) == ["all of us"]
    assert (ann.keys, ben.keys) == (2, 1)
    overheard = ann.heard[-1]
    assert ben.business_key is not None
    with pytest.raises(e2ee.NoSession):
        ben.business_key.decrypt(overheard)
    kinds = [entry["type"] for entry in scene.system()]
    assert kinds == ["group_created", "group_user_joined", "group_user_joined", "group_user_left"]
    left = scene.system()[-1]
    assert (left["operator"], left["users"], left["group_id"]) == (
        BEN if how == "leaves" else BUSINESS,
        [BEN],
        group,
    )


async def test_an_unnoticed_rejoin_and_departure_still_replaces_the_sender_key(scene: Scene) -> None:
    group = await scene.create()
    ann, ben = await scene.joined(group, ANN, BEN)
    first = await scene.sent(group, "one")
    await scene.until_webhook(lambda: len(scene.statuses(first)) == 5)
    await ben.call("DELETE", f"/{group}")
    await ben.join(group)
    await ben.call("DELETE", f"/{group}")
    await scene.until_webhook(lambda: len(scene.system()) == 6)
    second = await scene.sent(group, "two")
    await scene.until_webhook(lambda: len(scene.statuses(second)) == 3)
    assert (ann.keys, ben.keys) == (2, 1)
    assert texts(ann) == ["one", "two"]


async def test_after_a_concurrent_group_change_messages_are_re_encrypted_in_order(scene: Scene) -> None:
    """The network refuses what was encrypted for the former participants. Nothing is lost and nothing arrives
    twice."""
    group = await scene.create()
    ann, ben, cat = await scene.joined(group, ANN, BEN, CAT)
    first = await scene.sent(group, "one")
    await scene.until_webhook(lambda: len(scene.statuses(first)) == 7)
    # Notices are held back for a while, so the Coreapp's replica is out of date.
    events = scene.running.shard.receiving
    held: list[frames.Deliver] = []
    deliver = events.delivered
    events.delivered = (  # type: ignore[method-assign]
        lambda delivery: held.append(delivery) if delivery.kind == frames.GROUP_CHANGED else deliver(delivery)
    )
    await ben.call("DELETE", f"/{group}")
    sent = [await scene.sent(group, f"m{n}") for n in range(5)]
    await scene.until_webhook(lambda: all(len(scene.statuses(message)) == 5 for message in sent))
    expected = [(first, "one"), *((message, f"m{n}") for n, message in enumerate(sent))]
    assert ann.shown == cat.shown == expected
    assert ben.shown == [(first, "one")]
    assert (ann.keys, ben.keys, cat.keys) == (2, 1, 2)
    events.delivered = deliver  # type: ignore[method-assign]
    for delivery in held:
        deliver(delivery)
    await scene.until_webhook(lambda: any(entry["type"] == "group_user_left" for entry in scene.system()))
    last = await scene.sent(group, "last")
    await scene.until_webhook(lambda: len(scene.statuses(last)) == 5)
    assert (ann.keys, cat.keys) == (2, 2)
    assert ann.shown == cat.shown == [*expected, (last, "last")]


async def test_no_group_message_is_sent_before_every_member_s_sender_key(scene: Scene) -> None:
    group = await scene.create()
    await scene.joined(group, ANN, BEN)
    link = scene.running.shard.link
    sent: list[str] = []
    send = link.send

    def watch(envelope: frames.Send) -> None:
        sent.append(envelope.kind)
        send(envelope)

    link.send = watch  # type: ignore[method-assign]
    message = await scene.sent(group)
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 5)
    assert sent == [frames.PREKEY, frames.PREKEY, frames.GROUP]


async def test_a_member_who_cannot_get_the_sender_key_does_not_delay_the_group(scene: Scene) -> None:
    group = await scene.create()
    ann, ben = await scene.joined(group, ANN, BEN)
    async with httpx.AsyncClient(base_url=scene.http, verify=False, trust_env=False) as client:
        headers = {"Authorization": f"Bearer {ben.token}"}
        response = await client.put(f"/v1/blocks/{BEN}/{BUSINESS}", headers=headers)
        assert response.is_success
    message = await scene.sent(group)
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 3)
    assert texts(ann) == ["hello"]
    assert texts(ben) == []


# Crashes.


async def test_a_crash_between_sender_key_and_message_loses_and_repeats_nothing(scene: Scene) -> None:
    group = await scene.create()
    ann, ben = await scene.joined(group, ANN, BEN)
    link = scene.running.shard.link
    # From here on nothing is sent: the keys are in the queue, the messages behind them.
    link.send = lambda envelope: None  # type: ignore[method-assign]
    sent = [await scene.sent(group, str(n)) for n in range(3)]
    await scene.restart()
    await scene.until_webhook(lambda: all(len(scene.statuses(message)) == 5 for message in sent))
    expected = [(message, str(n)) for n, message in enumerate(sent)]
    assert ann.shown == ben.shown == expected
    assert ann.lost == ben.lost == []


async def test_a_crash_with_stored_ciphertexts_resends_the_same_bytes(scene: Scene) -> None:
    group = await scene.create()
    ann, ben = await scene.joined(group, ANN, BEN)
    first = await scene.sent(group, "first")
    await scene.until_webhook(lambda: len(scene.statuses(first)) == 5)
    link = scene.running.shard.link
    send, taken = link.send, []

    def lose_the_response(envelope: frames.Send) -> None:
        taken.append(envelope)
        send(envelope)

    # The network accepts it, and the process dies before it receives the acceptance.
    link.send = lose_the_response  # type: ignore[method-assign]
    scene.running.shard.sending.transmitter.accepted = lambda ids: None  # type: ignore[method-assign]
    message = await scene.sent(group, "second")
    await ann.signals.until(lambda: len(ann.shown) == 2)
    await ben.signals.until(lambda: len(ben.shown) == 2)
    await scene.restart()
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 5)
    third = await scene.sent(group, "third")
    await scene.until_webhook(lambda: len(scene.statuses(third)) == 5)
    assert texts(ann) == texts(ben) == ["first", "second", "third"]
    assert len(taken) == 1


async def test_a_crash_keeps_the_list_of_sender_key_holders(scene: Scene) -> None:
    group = await scene.create()
    ann, ben = await scene.joined(group, ANN, BEN)
    first = await scene.sent(group, "one")
    await scene.until_webhook(lambda: len(scene.statuses(first)) == 5)
    await scene.restart()
    second = await scene.sent(group, "two")
    await scene.until_webhook(lambda: len(scene.statuses(second)) == 5)
    assert (ann.keys, ben.keys) == (1, 1)
    await scene.running.stopped()
    await ben.call("DELETE", f"/{group}")
    await scene.restart()
    third = await scene.sent(group, "three")
    await scene.until_webhook(lambda: len(scene.statuses(third)) == 3)
    assert texts(ann) == ["one", "two", "three"]
    assert (ann.keys, ben.keys) == (2, 1)


# Files, and identities.


async def test_a_group_image_is_uploaded_once_and_sent_before_later_messages(scene: Scene) -> None:
    group = await scene.create()
    ann, ben = await scene.joined(group, ANN, BEN)
    row = await media_scene.upload(scene.world)
    content = json.dumps({"type": "image", "image": {"id": row.id, "caption": "Look"}}).encode()
    response = await scene.call(
        lambda n: core.AcceptMessage(n, BUSINESS, group, "image", content, recipient_type="group", has_media=True)
    )
    assert isinstance(response, core.Accepted), response
    after = await scene.sent(group, "after")
    await scene.until_webhook(lambda: len(scene.statuses(after)) == 5)
    assert [id for id, _ in ann.shown] == [response.id, after]
    assert ann.shown == ben.shown
    picture: Any = ann.shown[0][1]
    assert picture["image"].keys() >= {"blob", "key", "digest", "size", "mime_type", "sha256", "caption"}


async def test_an_image_in_flight_survives_a_group_change(scene: Scene) -> None:
    group = await scene.create()
    ann, ben = await scene.joined(group, ANN, BEN)
    first = await scene.sent(group, "one")
    await scene.until_webhook(lambda: len(scene.statuses(first)) == 5)
    events = scene.running.shard.receiving
    deliver = events.delivered
    events.delivered = (  # type: ignore[method-assign]
        lambda delivery: None if delivery.kind == frames.GROUP_CHANGED else deliver(delivery)
    )
    await ben.call("DELETE", f"/{group}")
    row = await media_scene.upload(scene.world)
    content = json.dumps({"type": "image", "image": {"id": row.id}}).encode()
    response = await scene.call(
        lambda n: core.AcceptMessage(n, BUSINESS, group, "image", content, recipient_type="group", has_media=True)
    )
    await scene.until_webhook(lambda: len(scene.statuses(response.id)) == 3)
    picture: Any = ann.shown[-1][1]
    assert picture["image"]["blob"]


async def test_a_member_gets_the_sender_key_once_its_identity_is_acknowledged(
    scene: Scene,
) -> None:
    await scene.world.configure(show_security_notifications=True)
    assert isinstance(await scene.call(lambda n: core.SettingsChanged(n, BUSINESS)), core.Done)
    group = await scene.create()
    ann, ben = await scene.joined(group, ANN, BEN)
    first = await scene.sent(group, "one")
    await scene.until_webhook(lambda: len(scene.statuses(first)) == 5)
    ann.disconnect()
    again = await scene.member(ANN)
    await scene.until_webhook(lambda: any(entry["type"] == "user_identity_changed" for entry in scene.system()))
    second = await scene.sent(group, "two")
    await scene.until_webhook(lambda: len(scene.statuses(second)) == 3)
    assert [text for _, text in ben.shown] == ["one", "two"]
    assert (again.keys, again.shown) == (0, [])
    requested = await scene.call(lambda n: core.GetIdentity(n, BUSINESS, ANN))
    response = await scene.call(lambda n: core.AcknowledgeIdentity(n, BUSINESS, ANN, requested.hash))
    assert isinstance(response, core.Done), response
    third = await scene.sent(group, "three")
    await scene.until_webhook(lambda: len(scene.statuses(third)) == 5)
    assert texts(again) == ["three"]


async def test_of_group_messages_that_the_database_refuses_together_only_the_cause_is_quarantined(scene: Scene) -> None:
    group = await scene.create()
    (ann,) = await scene.joined(group, ANN)
    first = await scene.sent(group, "first")
    await scene.until_webhook(lambda: len(scene.statuses(first)) == 3)
    rows = []
    for index in range(3):
        job = Job(f"job-{index}", 0, BUSINESS, group, JobForm.NEW, "", b"", index + 1)
        content = json.dumps({"type": "text", "text": {"body": f"text {index}"}}).encode()
        scene.running.shard.sending.encryption.seal_content(job, content)
        rows.append(job)
    await scene.running.killed()
    database = scene.world.database
    async with database.transaction() as connection:
        found = [MessageRow(job.id, BUSINESS, 0, job.peer, "text", Status.ACCEPTED, 1, "") for job in rows]
        await messages.add(connection, found)
        await jobs.enqueue(connection, rows)
    # All three messages are encrypted in one round, and the database refuses the ciphertext of the second.
    async with refused_rows(database, "jobs", "NEW.id = 'job-1' AND NEW.state = 1"):
        await scene.restart()
        await ann.signals.until(lambda: texts(ann) == ["first", "text 0", "text 2"])
        async with database.reading() as connection:
            counted = {row.id: row.attempts for row in await quarantine.list_suspects(connection, limit=100)}
        assert counted.pop("job-1") == 3
        assert all(attempts < 3 for attempts in counted.values())
