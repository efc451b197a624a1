"""Actions of the business in a thread: mark messages as read, and write freely for 24 hours after a message."""

from __future__ import annotations

import asyncio
import json

import pytest

from coreapp.conversations import ConversationNames
from tests.coreapp import webhook_schemas
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.scripted_network import HOLD
from tests.manual_clock import ManualClock
from tidings.storage.business import jobs, messages
from tidings.storage.business.messages import Status
from tidings.wire import core
from tidings.wire import device as frames

NUMBER = "15550110001"
OTHER = "15550110002"
NOW = 1_700_000_000


def text(body: str) -> bytes:
    return json.dumps({"type": "text", "text": {"body": body}, "profile": {"name": "Ada"}}).encode()


async def started(world: World, **settings: object) -> tuple[Running, Phone]:
    phone, _ = world.add_phones(NUMBER, OTHER)
    running = await world.start(**settings)  # type: ignore[arg-type]
    await world.connected(running)
    await running.client.check(NUMBER, OTHER)
    return running, phone


async def write(world: World, phone: Phone, *ids: str, content: bytes | None = None, timestamp: int = NOW) -> None:
    """Send messages of the phone, one second apart, and wait until they are posted to the webhook."""
    for n, message_id in enumerate(ids):
        kind, body = phone.write(
            content or text(message_id), world.network.business_bundle(one_time=int(phone.number[-1]))
        )
        world.network.deliver(phone.number, kind, id=message_id, body=body, timestamp=(timestamp + n) * 1000)
    await world.network.signals.until(lambda: set(ids) <= set(world.network.acknowledged))


async def mark(running: Running, message_id: str) -> core.Done | core.Refused:
    response = await running.client.call(lambda n: core.MarkRead(n, BUSINESS, message_id))
    assert isinstance(response, core.Done | core.Refused)
    return response


def receipts(world: World) -> list[tuple[str, list[str]]]:
    return [(send.to, send.refs) for send in world.network.sends if send.kind == frames.READ]


async def test_a_read_receipt_includes_earlier_unread_messages_and_is_sent_once(world: World) -> None:
    running, phone = await started(world)
    other = world.network.phones[OTHER]
    await write(world, phone, "a", "b", "c", "d")
    await write(world, other, "o")
    await asyncio.gather(*(mark(running, "c") for _ in range(3)))
    await world.network.signals.until(lambda: len(receipts(world)) == 1)
    to, refs = receipts(world)[0]
    assert (to, sorted(refs)) == (NUMBER, ["a", "b", "c"])
    # These are read already, so the sender gets no second receipt. One more message follows.
    assert isinstance(await mark(running, "a"), core.Done)
    assert isinstance(await mark(running, "d"), core.Done)
    await world.network.signals.until(lambda: len(receipts(world)) == 2)
    assert receipts(world)[1] == (NUMBER, ["d"])
    await running.stopped()
    async with world.database.reading() as connection:
        assert await jobs.count(connection) == 0
        rows = await messages.list_progress(connection, BUSINESS, ["a", "b", "c", "d", "o"])
    assert {row.id for row in rows if row.status == Status.MARKED_READ} == {"a", "b", "c", "d"}
    assert {row.id for row in rows if row.status == Status.RECEIVED} == {"o"}


async def test_an_unknown_message_cannot_be_marked_as_read(world: World) -> None:
    running, _ = await started(world)
    ours = (await running.client.send(NUMBER)).id
    for message_id in ("nothing", ours):
        response = await mark(running, message_id)
        assert isinstance(response, core.Refused)
        assert (response.code, response.details) == (1006, "unknown message")


async def test_an_accepted_read_mark_survives_a_kill(world: World) -> None:
    running, phone = await started(world)
    await write(world, phone, "a")
    world.network.policy = lambda send: HOLD
    assert isinstance(await mark(running, "a"), core.Done)
    await running.killed()
    world.network.policy = lambda send: None
    before = len(receipts(world))
    again = await world.start(node="second")
    await world.connected(again)
    await world.network.signals.until(lambda: len(receipts(world)) > before)
    assert receipts(world)[-1] == (NUMBER, ["a"])
    await again.stopped()
    assert not [label for label in world.sink.labels() if label[1] == "read"]


async def test_a_read_receipt_to_an_unregistered_number_is_dropped_silently(world: World) -> None:
    running, phone = await started(world)
    await write(world, phone, "a")
    world.network.policy = lambda send: frames.NO_SUCH_NUMBER
    assert isinstance(await mark(running, "a"), core.Done)
    await running.stopped()
    async with world.database.reading() as connection:
        assert await jobs.count(connection) == 0
    assert "failed" not in [status for _, status in world.sink.labels()]


async def test_outside_the_24_hour_window_all_but_templates_fail_with_470(world: World) -> None:
    clock = ManualClock(NOW)
    running, phone = await started(world, clock=clock, reengagement_window=True)
    early = (await running.client.send(NUMBER)).id
    await world.sink.signals.until(lambda: (early, "failed") in world.sink.labels())
    assert world.network.sends == []
    (post,) = [post for post in world.sink.posts if post.label == (early, "failed")]
    [error] = post.body["statuses"][0]["errors"]
    assert (error["code"], error["title"]) == (470, "Re-engagement message")
    webhook_schemas.check(post.body)

    content = b'{"type":"template","template":{"name":"x"}}'
    response = await running.client.call(lambda n: core.AcceptMessage(n, BUSINESS, NUMBER, "template", content))
    await world.sink.signals.until(lambda: (response.id, "sent") in world.sink.labels())
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    send = world.network.sends[0]
    phone.read(send.kind, send.body)

    await write(world, phone, "in-1")
    inside = (await running.client.send(NUMBER)).id
    await world.sink.signals.until(lambda: (inside, "sent") in world.sink.labels())
    clock.advance(24 * 3600 + 1)
    late = (await running.client.send(NUMBER)).id
    await world.sink.signals.until(lambda: (late, "failed") in world.sink.labels())
    await running.stopped()
    async with world.database.reading() as connection:
        rows = await messages.list_progress(connection, BUSINESS, [early, inside, late])
    assert {row.id: row.status for row in rows} == {early: Status.FAILED, inside: Status.SENT, late: Status.FAILED}


async def test_the_24_hour_window_survives_a_restart(world: World) -> None:
    clock = ManualClock(NOW)
    running, phone = await started(world, clock=clock, reengagement_window=True)
    await write(world, phone, "in-1")
    await running.stopped()
    again = await world.start(node="second", clock=clock, reengagement_window=True)
    await world.connected(again)
    sent = (await again.client.send(NUMBER)).id
    await world.sink.signals.until(lambda: (sent, "sent") in world.sink.labels())


async def test_a_deleted_message_is_reported_and_left_out_of_read_receipts(world: World) -> None:
    running, phone = await started(world)
    await write(world, phone, "a", "b")
    ours = (await running.client.send(NUMBER)).id
    for n, target in enumerate(("a", ours)):
        content = json.dumps({"type": "deleted", "deleted": {"id": target}}).encode()
        await write(world, phone, f"del-{n}", content=content)
    stranger = world.network.phones[OTHER]
    await write(world, stranger, "del-9", content=b'{"type":"deleted","deleted":{"id":"b"}}')
    await mark(running, "b")
    await world.network.signals.until(lambda: len(receipts(world)) == 1)
    await running.stopped()
    assert receipts(world) == [(NUMBER, ["b"])]
    deleted = [post for post in world.sink.taken() if post.label[1] == "deleted"]
    assert [post.label[0] for post in deleted] == ["a"]
    webhook_schemas.check(deleted[0].body)


@pytest.mark.parametrize("disabled", [False, True])
async def test_every_status_of_a_message_names_one_conversation(world: World, disabled: bool) -> None:
    await world.configure(webhook_payload_conversation_pricingmodel_disabled=disabled)
    world.network.receipts = (frames.DELIVERED, frames.READ)
    running, _ = await started(world)
    sent = [(await running.client.send(NUMBER)).id for _ in range(2)]
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 6)
    statuses = [post.body["statuses"][0] for post in world.sink.taken()]
    for post in world.sink.taken():
        webhook_schemas.check(post.body)
    named = {status["conversation"]["id"] for status in statuses if "conversation" in status}
    assert len(named) == (0 if disabled else 1)
    told = sorted((sent.index(status["id"]), status["status"]) for status in statuses if "pricing" in status)
    assert told == ([] if disabled else [(n, step) for n in range(2) for step in ("delivered", "sent")])


@pytest.mark.parametrize("names", list(ConversationNames))
async def test_the_template_category_names_the_conversation_even_after_a_restart(
    world: World, names: ConversationNames
) -> None:
    content = b'{"type":"template","template":{}}'
    running, _ = await started(world, conversations=names)
    sent = await running.client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, NUMBER, "template", content, category="MARKETING")
    )
    await world.sink.signals.until(lambda: world.sink.statuses_of(sent.id) == ["sent"])
    await running.stopped()
    running = await world.start(node="second", conversations=names)
    await world.connected(running)
    world.network.deliver(NUMBER, frames.DELIVERED, id="in-1", refs=[sent.id])
    await world.sink.signals.until(lambda: world.sink.statuses_of(sent.id) == ["sent", "delivered"])
    told = [post.body["statuses"][0] for post in world.sink.taken()]
    expected = "marketing" if names is ConversationNames.CATEGORY else "business_initiated"
    assert [status["conversation"]["origin"]["type"] for status in told] == [expected] * 2
    assert [status["pricing"]["category"] for status in told] == [expected] * 2


@pytest.mark.parametrize("restarted", [False, True])
async def test_only_its_sender_can_delete_a_message_even_after_a_restart(world: World, restarted: bool) -> None:
    running, phone = await started(world)
    other = world.network.phones[OTHER]
    await write(world, phone, "a", "b")
    if restarted:
        await running.stopped()
        running = await world.start(node="second")
        await world.connected(running)
    else:
        running.shard.receiving.statuses.tracker.evict()
    for n, (who, target) in enumerate(((other, "a"), (other, "never"), (phone, "a"), (phone, "never"), (other, "b"))):
        await write(world, who, f"del-{n}", content=json.dumps({"type": "deleted", "deleted": {"id": target}}).encode())
    await write(world, phone, "c", timestamp=NOW + 9)
    await mark(running, "c")
    await world.sink.signals.until(lambda: ("c", "received") in world.sink.labels())
    await world.network.signals.until(lambda: bool(receipts(world)))
    await running.stopped()
    assert [post.label for post in world.sink.taken() if post.label[1] == "deleted"] == [("a", "deleted")]
    assert [(to, sorted(refs)) for to, refs in receipts(world)] == [(NUMBER, ["b", "c"])]


async def test_receipts_for_messages_to_others_are_ignored_after_a_restart(world: World) -> None:
    running, phone = await started(world)
    await write(world, phone, "a")
    ours = (await running.client.send(NUMBER)).id
    await world.sink.signals.until(lambda: (ours, "sent") in world.sink.labels())
    await running.stopped()
    again = await world.start(node="second")
    await world.connected(again)
    for n, sender in enumerate((OTHER, NUMBER)):
        for kind in (frames.DELIVERED, frames.READ, frames.EXPIRED):
            if (sender, kind) != (NUMBER, frames.EXPIRED):
                world.network.deliver(sender, kind, id=f"r-{n}-{kind}", refs=(ours, "a"), timestamp=(NOW + n) * 1000)
        await world.network.signals.until(lambda n=n: f"r-{n}-read" in world.network.acknowledged)  # type: ignore[misc]
    await world.sink.signals.until(lambda: (ours, "read") in world.sink.labels())
    await again.stopped()
    assert world.sink.statuses_of(ours) == ["sent", "delivered", "read"]
    assert world.sink.statuses_of("a") == ["received"]
    times = {
        entry["timestamp"]
        for post in world.sink.taken()
        for entry in post.body.get("statuses", ())
        if entry["id"] == ours and entry["status"] != "sent"
    }
    assert times == {str(NOW + 1)}
