"""Messages from people in groups to the business, and the statuses of the business's messages for each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tests.coreapp import webhook_schemas
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.group_scene import ANN, BEN, CAT, Member, Scene, group_scene
from tests.coreapp.signals import soon
from tidings import e2ee
from tidings.storage.business import group_messages, sender_keys
from tidings.wire import core
from tidings.wire import device as frames


@pytest.fixture
async def scene(world: World, database_factory: DatabaseFactory, tmp_path: Path) -> AsyncIterator[Scene]:
    async with group_scene(world, database_factory, tmp_path) as scene:
        yield scene
        for post in world.sink.posts:
            webhook_schemas.check(post.body)


def text(body: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": {"body": body}, **more}


async def talking(scene: Scene, *numbers: str) -> tuple[str, list[Member]]:
    """Return a group in which the business has sent a message and given its sender key to all, and its members.

    Each member has a session with the business.
    """
    group = await scene.create()
    members = await scene.joined(group, *numbers)
    message = await scene.sent(group, "welcome")
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 1 + 2 * len(members))
    for member in members:
        member.give_key(group)
    return group, members


def received(scene: Scene) -> list[dict[str, Any]]:
    return [entry for entry in scene.bodies("messages") if entry["type"] != "system"]


async def test_a_group_message_reaches_the_webhook_with_group_id_and_context(scene: Scene) -> None:
    group, (ann, _) = await talking(scene, ANN, BEN)
    ours = ann.shown[0][0]
    await ann.send_to_group(group, "in-1", text("hello all", context={"id": ours, "from": BUSINESS}))
    await scene.until_webhook(lambda: len(received(scene)) == 1)
    (entry,) = received(scene)
    assert entry == {
        "from": ANN,
        "id": "in-1",
        "group_id": group,
        "timestamp": entry["timestamp"],
        "type": "text",
        "text": {"body": "hello all"},
        "context": {"id": ours, "from": BUSINESS, "group_id": group},
    }
    (post,) = [post for post in scene.world.sink.taken() if post.label == ("in-1", "received")]
    assert post.body["contacts"] == [{"profile": {"name": ANN}, "wa_id": ANN}]


async def test_group_messages_are_read_across_a_crash_without_duplicates(scene: Scene) -> None:
    group, (ann, ben) = await talking(scene, ANN, BEN)
    for n in range(3):
        await ann.send_to_group(group, f"a{n}", text(str(n)))
    await scene.until_webhook(lambda: len(received(scene)) == 3)
    # Our acknowledgements are lost: everything is delivered again to the next owner.
    scene.running.shard.link.acknowledge = lambda deliveries: None  # type: ignore[method-assign]
    await ann.send_to_group(group, "a3", text("3"))
    await ben.send_to_group(group, "b0", text("0"))
    await scene.until_webhook(lambda: len(received(scene)) == 5)
    await scene.restart()
    await ann.send_to_group(group, "a4", text("4"))
    await scene.until_webhook(lambda: len(received(scene)) == 6)
    assert [entry["id"] for entry in received(scene)] == ["a0", "a1", "a2", "a3", "b0", "a4"]


async def test_a_group_message_without_its_sender_key_is_dropped_and_the_key_requested(scene: Scene) -> None:
    group = await scene.create()
    (ann,) = await scene.joined(group, ANN)
    message = await scene.sent(group)
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 3)
    await ann.send_to_group(group, "lost-1", text("nobody has my key"))
    await ann.signals.until(lambda: ann.key_requests == 1)
    await ann.send_to_group(group, "in-1", text("now they have"))
    await scene.until_webhook(lambda: [entry["id"] for entry in received(scene)] == ["in-1"])
    # A new chain that was not announced: the business has requested the key already within this hour.
    ann.own_key = e2ee.SenderKeyRecord.create(ann.own_key.distribution_id)
    await ann.send_to_group(group, "lost-2", text("a new key"))
    ann.give_key(group)
    await ann.send_to_group(group, "in-2", text("and again"))
    await scene.until_webhook(lambda: [entry["id"] for entry in received(scene)] == ["in-1", "in-2"])
    assert ann.key_requests == 1


async def test_a_participant_who_requests_the_sender_key_gets_it_again(scene: Scene) -> None:
    group, (ann, ben) = await talking(scene, ANN, BEN)
    ann.business_key = None
    request = {"type": "sender_key_request", "sender_key_request": {"group": group}}
    ann.send_to_business("ask-1", request)
    await ann.signals.until(lambda: ann.keys == 2)
    second = await scene.sent(group, "two")
    await scene.until_webhook(lambda: len(scene.statuses(second)) == 5)
    assert [body for _, body in ann.shown] == ["welcome", "two"]
    # At most once an hour, and not to numbers outside the group.
    ann.send_to_business("ask-2", request)
    (cat,) = [await scene.member(CAT)]
    await scene.call(lambda n: core.CheckContacts(n, BUSINESS, ["+" + CAT], True))
    content = b'{"type":"text","text":{"body":"hello"}}'
    assert isinstance(await scene.call(lambda n: core.AcceptMessage(n, BUSINESS, CAT, "text", content)), core.Accepted)
    await cat.signals.until(lambda: cat.record is not None)
    cat.send_to_business("ask-3", request)
    third = await scene.sent(group, "three")
    await scene.until_webhook(lambda: len(scene.statuses(third)) == 5)
    assert (ann.keys, ben.keys, cat.keys) == (2, 1, 0)


async def test_the_sender_key_of_a_non_participant_is_ignored(scene: Scene) -> None:
    group, (ann,) = await talking(scene, ANN)
    other = await scene.create("Another")
    ann.send_to_business("key-1", {"type": "sender_key", "sender_key": {"group": other, "distribution": "aGk="}})
    ann.send_to_business("key-2", {"type": "sender_key", "sender_key": {"group": group, "distribution": "aGk="}})
    ann.send_to_business("key-3", {"type": "sender_key", "sender_key": {"group": group}})
    ann.send_to_business("end", text("the end"))
    await scene.until_webhook(lambda: any(entry["id"] == "end" for entry in received(scene)))
    async with scene.world.database.reading() as connection:
        kept = await sender_keys.list_peers(connection, BUSINESS, [ANN])
    assert [key.group_id for key in kept] == [group]


async def test_each_participant_s_receipt_is_reported_once_across_crashes(scene: Scene) -> None:
    group = await scene.create()
    ann, ben = await scene.joined(group, ANN, BEN)
    ann.receipts = (frames.READ,)
    ben.receipts = (frames.DELIVERED,)
    scene.running.shard.link.acknowledge = lambda deliveries: None  # type: ignore[method-assign]
    message = await scene.sent(group)
    # A status that was skipped is reported together with the later one.
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 4)
    await scene.restart()
    ben.send(BUSINESS, "late", frames.READ, refs=[message], group=group)
    ann.send(BUSINESS, "again", frames.DELIVERED, refs=[message], group=group)
    # A receipt that names another group than the message's, or none, has no effect.
    ann.send(BUSINESS, "wrong", frames.READ, refs=[message], group="15550000000-1")
    ann.send(BUSINESS, "none", frames.READ, refs=[message])
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 5)
    last = await scene.sent(group, "last")
    await scene.until_webhook(lambda: len(scene.statuses(last)) == 4)
    found = scene.statuses(message)
    assert found[0] == ("sent", group, None)
    assert [status for status, who, _ in found if who == ANN] == ["delivered", "read"]
    assert [status for status, who, _ in found if who == BEN] == ["delivered", "read"]
    async with scene.world.database.reading() as connection:
        rows = await group_messages.list_receipts(connection, [message], [ANN, BEN])
        status = (
            await connection.execute(sa.text("SELECT status FROM messages WHERE id = :id"), {"id": message})
        ).scalar_one()
    assert sorted((row.member, row.status) for row in rows) == [(ANN, 4), (BEN, 4)]
    assert status == 4


async def test_marking_a_group_message_as_read_sends_receipts_to_each_author(scene: Scene) -> None:
    group, (ann, ben) = await talking(scene, ANN, BEN)
    await ann.send_to_group(group, "a1", text("1"))
    await scene.until_webhook(lambda: len(received(scene)) == 1)
    await ben.send_to_group(group, "b1", text("2"))
    await scene.until_webhook(lambda: len(received(scene)) == 2)
    await ann.send_to_group(group, "a2", text("3"))
    await ann.send_to_group(group, "a3", text("4"))
    await scene.until_webhook(lambda: len(received(scene)) == 4)
    assert isinstance(await scene.call(lambda n: core.MarkRead(n, BUSINESS, "a2")), core.Done)
    await ann.signals.until(lambda: len(ann.reads) == 1)
    await ben.signals.until(lambda: len(ben.reads) == 1)
    assert [(sorted(frame.refs), frame.group) for frame in ann.reads] == [(["a1", "a2"], group)]
    assert [(frame.refs, frame.group) for frame in ben.reads] == [(["b1"], group)]
    # Once is enough. The other receipts are sent with the next one.
    assert isinstance(await scene.call(lambda n: core.MarkRead(n, BUSINESS, "a1")), core.Done)
    assert isinstance(await scene.call(lambda n: core.MarkRead(n, BUSINESS, "a3")), core.Done)
    await ann.signals.until(lambda: len(ann.reads) == 2)
    assert ann.reads[1].refs == ["a3"]
    assert len(ben.reads) == 1


async def test_a_participant_with_a_new_device_gets_the_sender_key_again(scene: Scene) -> None:
    group, (ann, ben) = await talking(scene, ANN, BEN)
    ann.disconnect()
    holders = scene.running.shard.groups.events.own.in_memory(group).holders
    assert holders[ANN] == sender_keys.GIVEN
    again = await scene.member(ANN)
    await soon(lambda: holders[ANN] == sender_keys.LACKS)
    message = await scene.sent(group, "two")
    await again.signals.until(lambda: bool(again.shown or again.lost))
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 5)
    assert [body for _, body in again.shown] == ["two"]
    assert (again.keys, ben.keys) == (1, 1)


async def test_a_deleted_group_message_is_reported_and_no_longer_unread(scene: Scene) -> None:
    group, (ann,) = await talking(scene, ANN)
    await ann.send_to_group(group, "a1", text("oops"))
    await ann.send_to_group(group, "a2", {"type": "deleted", "deleted": {"id": "a1"}})
    await scene.until_webhook(
        lambda: [entry["status"] for entry in scene.bodies("statuses") if entry["id"] == "a1"] != []
    )
    async with scene.world.database.reading() as connection:
        assert await group_messages.list_unread(connection, BUSINESS, "a1", limit=9) == ()


async def test_only_its_author_can_delete_a_group_message(scene: Scene) -> None:
    group, (ann, ben) = await talking(scene, ANN, BEN)
    await ann.send_to_group(group, "a1", text("mine"))
    await scene.until_webhook(lambda: len(received(scene)) == 1)
    scene.running.shard.receiving.statuses.tracker.evict()
    await ben.send_to_group(group, "b1", {"type": "deleted", "deleted": {"id": "a1"}})
    ben.send_to_business("b2", {"type": "deleted", "deleted": {"id": "a1"}})
    await ben.send_to_group(group, "b3", text("done"))
    await scene.until_webhook(lambda: len(received(scene)) == 2)
    assert [entry for entry in scene.bodies("statuses") if entry["status"] == "deleted"] == []
    async with scene.world.database.reading() as connection:
        assert len(await group_messages.list_unread(connection, BUSINESS, "a1", limit=9)) == 1


async def test_a_new_group_during_a_batch_does_not_disturb_it(scene: Scene) -> None:
    group, (ann,) = await talking(scene, ANN)
    events = scene.running.shard.groups.events
    load = events.receipts.load
    other = "15550000000-1"

    async def hear_of_another(ids: Any, members: Any) -> Any:
        found = events.replicas.find(group)
        assert found is not None
        events.replicas.take(dataclasses.replace(found, id=other))
        return await load(ids, members)

    events.receipts.load = hear_of_another  # type: ignore[method-assign]
    ann.send_to_business("ask-1", {"type": "sender_key_request", "sender_key_request": {"group": other}})
    ann.send_to_business("ask-2", {"type": "sender_key_request", "sender_key_request": {"group": group}})
    await ann.signals.until(lambda: ann.keys == 2)
    message = await scene.sent(group, "two")
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 3)
    assert [body for _, body in ann.shown] == ["welcome", "two"]


async def test_a_participant_who_rejoins_with_a_new_sender_key_is_read(scene: Scene) -> None:
    group, (ann,) = await talking(scene, ANN)
    await ann.send_to_group(group, "a1", text("1"))
    await scene.until_webhook(lambda: len(received(scene)) == 1)
    await ann.call("DELETE", f"/{group}")
    await scene.until_joined(group, without=(ANN,))
    ann.own_key = e2ee.SenderKeyRecord.create(ann.own_key.distribution_id)
    await ann.join(group)
    ann.give_key(group)
    await ann.send_to_group(group, "a2", text("2"))
    await scene.until_webhook(lambda: [entry["id"] for entry in received(scene)] == ["a1", "a2"])
    assert ann.key_requests == 0
