"""Events from the network: on disk before the acknowledgement, reported once, and none blocks the others."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coreapp import receipt_spacing
from coreapp.statuses import tracker
from coreapp.statuses.tracker import steps_between
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tidings.storage.business import accounts, messages, sessions
from tidings.storage.business.messages import Status
from tidings.wire import device as frames

NUMBER = "15550110001"
OTHER = "15550110002"
TEXT = b'{"type":"text","text":{"body":"hi"}}'


async def with_session(world: World, **more: object) -> tuple[Running, Phone, str]:
    """Start a Coreapp; return it, a phone, and the id of a message that the phone has read."""
    return await world.start_with_session(NUMBER, OTHER, **more)


async def acknowledged(world: World, *ids: str) -> None:
    await world.network.signals.until(lambda: set(ids) <= set(world.network.acknowledged))


async def test_a_read_receipt_before_delivered_reports_both_statuses_once(world: World) -> None:
    running, _, message = await with_session(world)
    world.network.deliver(NUMBER, frames.READ, id="r1", refs=[message])
    world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[message])
    world.network.deliver(NUMBER, frames.READ, id="r2", refs=[message])
    await acknowledged(world, "r1", "d1", "r2")
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 3)
    assert world.sink.statuses_of(message) == ["sent", "delivered", "read"]
    await running.stopped()

    again = await world.start(node="second")
    await world.connected(again)
    world.network.deliver(NUMBER, frames.DELIVERED, id="d3", refs=[message])
    world.network.deliver(NUMBER, frames.EXPIRED, id="e3", refs=[message])
    await acknowledged(world, "d3", "e3")
    await again.stopped()
    assert world.sink.statuses_of(message) == ["sent", "delivered", "read"]


class AnotherShard:
    """Further shard of the process, which receives nothing."""


async def test_with_several_shards_receipts_are_collected_until_the_spacing_is_over_or_a_message_arrives(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipt_spacing, "EACH", 3600.0)
    monkeypatch.setattr(receipt_spacing, "LONGEST", 3600.0)
    running, phone, message = await with_session(world)
    spacing, other = running.node.process.shared.receipt_spacing, AnotherShard()
    assert spacing.seconds == 0
    spacing.join(other)
    assert spacing.seconds == 3600.0
    world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[message])
    await acknowledged(world, "d1")
    world.network.deliver(NUMBER, frames.READ, id="r1", refs=[message])
    await asyncio.sleep(0.05)
    assert "r1" not in world.network.acknowledged
    kind, body = phone.write(TEXT)
    world.network.deliver(NUMBER, kind, id="in-1", body=body)
    await acknowledged(world, "r1", "in-1")
    # The end of the shard does not wait either.
    world.network.deliver(NUMBER, frames.READ, id="r2", refs=[message])
    await running.stopped()
    assert len(world.network.acknowledged) >= 3
    spacing.leave(other)
    assert spacing.seconds == 0


async def test_with_a_one_entry_status_cache_every_status_is_reported_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker, "CACHED", 1)
    numbers = [f"155501100{n:02}" for n in range(20)]
    world.add_phones(*numbers)
    world.network.receipts = (frames.DELIVERED, frames.READ, frames.DELIVERED)
    running = await world.start()
    await world.connected(running)
    await running.client.check(*numbers)
    sent = [(await running.client.send(number)).id for number in numbers * 2]
    world.network.deliver(numbers[0], frames.READ, id="all", refs=[sent[0], *sent])
    await acknowledged(world, "all")
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 120)
    await running.stopped()
    for message in sent:
        assert world.sink.statuses_of(message) == ["sent", "delivered", "read"]


async def test_an_expired_message_stays_failed(world: World) -> None:
    running, _, message = await with_session(world)
    world.network.deliver(NUMBER, frames.EXPIRED, id="e1", refs=[message])
    await acknowledged(world, "e1")
    world.network.deliver(NUMBER, frames.READ, id="r1", refs=[message])
    await acknowledged(world, "r1")
    await running.stopped()
    again = await world.start(node="second")
    await world.connected(again)
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 2)
    assert world.sink.statuses_of(message) == ["sent", "failed"]
    (failed,) = [post for post in world.sink.posts if post.label == (message, "failed")]
    assert failed.body["statuses"][0]["errors"][0]["code"] == 410


async def test_a_receipt_from_another_sender_is_ignored(world: World) -> None:
    running, phone, message = await with_session(world)
    kind, body = phone.write(TEXT)
    world.network.deliver(NUMBER, kind, id="in-1", body=body)
    world.network.deliver(OTHER, frames.READ, id="r1", refs=[message, "no such message"])
    # A sender cannot give statuses to its own messages either, and no database has a problem with malformed ids.
    world.network.deliver(NUMBER, frames.READ, id="r2", refs=["in-1", "", "x" * 65, "ж", "\ud83d\ude00"[:0] + "😀"])
    await acknowledged(world, "in-1", "r1", "r2")
    await running.stopped()
    async with world.database.reading() as connection:
        rows = await messages.list_progress(connection, BUSINESS, [message, "in-1"])
    assert {row.id: row.status for row in rows} == {message: Status.SENT, "in-1": Status.RECEIVED}
    assert set(world.sink.labels()) <= {(message, "sent"), ("in-1", "received")}


async def test_unacknowledged_deliveries_are_redelivered_after_a_kill_and_reported_once(world: World) -> None:
    running, phone, message = await with_session(world)
    kind, body = phone.write(TEXT)
    # The acknowledgement is lost: the rows exist, the connection is gone.
    running.shard.link.acknowledge = lambda deliveries: None  # type: ignore[method-assign]
    world.network.deliver(NUMBER, kind, id="in-1", body=body)
    world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[message])
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 3)
    assert world.network.acknowledged == []
    await running.killed()

    again = await world.start(node="second")
    await acknowledged(world, "in-1", "d1")
    await again.stopped()
    # A callback that was accepted may be posted again after a kill, but as the same event.
    assert len({post.event_id for post in world.sink.posts}) == len(set(world.sink.labels())) == 3


async def test_a_redelivery_during_the_first_handling_is_a_duplicate(world: World) -> None:
    running, phone, _ = await with_session(world)
    kind, body = phone.write(TEXT)
    world.network.deliver(NUMBER, kind, id="in-1", body=body)
    world.network.drop()
    await world.network.signals.until(lambda: world.network.logins == 2)
    await acknowledged(world, "in-1")
    await world.sink.signals.until(lambda: ("in-1", "received") in world.sink.labels())
    await running.stopped()
    assert world.sink.labels().count(("in-1", "received")) == 1


async def test_a_new_session_and_the_deletion_of_its_one_time_pre_key_share_a_commit(
    world: World,
) -> None:
    running = await world.start()
    await world.connected(running)
    stranger = Phone(OTHER)
    world.network.add(stranger)
    bundle = world.network.business_bundle(one_time=3)
    for n in range(3):
        kind, body = stranger.write(TEXT, bundle)
        assert kind == frames.PREKEY
        world.network.deliver(OTHER, kind, id=f"in-{n}", body=body)
    await acknowledged(world, "in-0", "in-1", "in-2")
    async with world.database.reading() as connection:
        left = {key.key_id for key in await accounts.list_prekeys(connection, BUSINESS) if key.kind == "one_time"}
        found = await sessions.list_sessions(connection, BUSINESS, [OTHER])
    assert bundle.prekey_id not in left
    assert len(left) == 99
    assert len(found) == 1
    # The business replies on that session, without a fetch of keys.
    await running.client.check(OTHER)
    await running.client.send(OTHER, "welcome")
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    send = world.network.sends[0]
    assert stranger.read(send.kind, send.body)["text"] == {"body": "welcome"}
    assert world.network.fetches == []


async def test_unreadable_deliveries_are_dropped_and_later_ones_are_posted(world: World) -> None:
    running, phone, _ = await with_session(world)
    bad = [
        (frames.MESSAGE, b""),
        (frames.MESSAGE, b"\x33garbage"),
        (frames.PREKEY, b"\x44garbage"),
        ("strange", b""),
    ]
    for n, (kind, body) in enumerate(bad):
        world.network.deliver(NUMBER, kind, id=f"bad-{n}", body=body)
    world.network.deliver("15550119999", frames.MESSAGE, id="bad-stranger", body=phone.write(TEXT)[1])
    world.network.deliver(NUMBER, frames.MESSAGE, id="é" * 3, body=phone.write(TEXT)[1])
    kind, body = phone.write(TEXT)
    world.network.deliver(NUMBER, kind, id="good", body=body)
    await acknowledged(world, *(f"bad-{n}" for n in range(4)), "bad-stranger", "é" * 3, "good")
    await world.sink.signals.until(lambda: ("good", "received") in world.sink.labels())
    await running.stopped()
    assert [label for label in world.sink.labels() if label[1] == "received"] == [("good", "received")]


@pytest.mark.parametrize(
    "content",
    [
        b"not json",
        b"[]",
        b"{}",
        b'{"type":1}',
        b'{"type":"text"}',
        b'{"type":"text","text":"no object"}',
        b'{"type":"from","from":{"a":1}}',
        b'{"type":"id","id":{"a":1}}',
        '{"type":"текст","текст":{}}'.encode(),
        b'{"type":"averyveryverylongtype","averyveryverylongtype":{}}',
        b'{"type":"text","text":{"body":"\\ud800"}}',
        b"[" * 3000,
        b"\xff\xfe",
    ],
)
async def test_a_content_of_unknown_form_is_posted_as_unknown(world: World, content: bytes) -> None:
    running, phone, _ = await with_session(world)
    for id, text in (("odd", content), ("good", TEXT)):
        kind, body = phone.write(text)
        world.network.deliver(NUMBER, kind, id=id, body=body)
    await world.sink.signals.until(lambda: {("odd", "received"), ("good", "received")} <= set(world.sink.labels()))
    (post,) = [post for post in world.sink.posts if post.label[0] == "odd"]
    (message,) = post.body["messages"]
    assert (message["from"], message["id"], message["type"]) == (NUMBER, "odd", "unknown")
    assert message["errors"][0]["code"] == 501
    assert not running.task.done()


async def test_null_messages_are_read_and_not_posted(world: World) -> None:
    running, phone, _ = await with_session(world)
    for n in range(3):
        kind, body = phone.write(b'{"type":"null"}')
        world.network.deliver(NUMBER, kind, id=f"null-{n}", body=body)
    await acknowledged(world, "null-0", "null-1", "null-2")
    await running.client.send(NUMBER, "settled")
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    assert world.network.sends[1].kind == frames.MESSAGE
    await running.stopped()
    assert not [label for label in world.sink.labels() if label[1] == "received"]


async def test_new_pre_keys_are_stored_and_uploaded_when_the_network_runs_low(world: World) -> None:
    running = await world.start()
    await world.connected(running)
    # The first upload has the one-time Kyber pre-keys, of which a new number has none.
    await world.network.signals.until(lambda: len(world.network.uploads) == 1)
    assert "prekeys" not in world.network.uploads[0]
    assert len({key["key_id"] for key in world.network.uploads[0]["kyber_prekeys"]}) == 100
    world.network.send_frame(frames.PreKeysLow(BUSINESS, 3, 100))
    await world.network.signals.until(lambda: len(world.network.uploads) == 2)
    assert "kyber_prekeys" not in world.network.uploads[1]
    uploaded = {key["key_id"] for key in world.network.uploads[1]["prekeys"]}
    async with world.database.reading() as connection:
        kept = {key.key_id for key in await accounts.list_prekeys(connection, BUSINESS) if key.kind == "one_time"}
    assert uploaded < kept
    assert len(kept) == len(uploaded) + 100


STATUSES = st.sampled_from([Status.SENT, Status.DELIVERED, Status.READ, Status.FAILED])


@given(st.lists(STATUSES, max_size=12))
def test_statuses_advance_in_order_without_gaps_and_end_once(reached: list[Status]) -> None:
    current, reported = Status.ACCEPTED, []
    for status in reached:
        for step in steps_between(current, status):
            reported.append(step)
            current = step
    assert reported == sorted(set(reported))
    order = [Status.SENT, Status.DELIVERED, Status.READ]
    forward = [status for status in reported if status is not Status.FAILED]
    assert forward == order[: len(forward)]
    if Status.FAILED in reported:
        assert Status.DELIVERED not in reported
    assert steps_between(Status.RECEIVED, reached[0] if reached else Status.READ) == ()
