"""Undecryptable messages: the session is repaired, they are requested again, and arrive exactly once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coreapp.recovery import session_repair
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.receiving.test_events import acknowledged, with_session
from tests.coreapp.scripted_network import HOLD
from tests.coreapp.signals import soon
from tests.manual_clock import ManualClock
from tidings import e2ee
from tidings.client.sessions import MAX_ATTEMPTS
from tidings.storage.business import messages, sessions
from tidings.wire import device as frames

NUMBER = "15550110001"
GARBAGE = b"\x33garbage"


def text(body: str) -> bytes:
    return b'{"type":"text","text":{"body":"%s"}}' % body.encode()


def errors(world: World) -> list[str]:
    """Return the webhook's errors about undecryptable messages, each event once."""
    posts = {post.event_id: post.body for post in world.sink.taken() if "errors" in post.body}
    return [body["errors"][0]["details"] for body in posts.values()]


def received(world: World) -> dict[str, list[dict[str, Any]]]:
    """Return the messages posted, by id, each event once."""
    posts = {post.event_id: post.body["messages"][0] for post in world.sink.taken() if "messages" in post.body}
    found: dict[str, list[dict[str, Any]]] = {}
    for message in posts.values():
        found.setdefault(message["id"], []).append(message)
    return found


def sent(world: World, kind: str) -> list[frames.Send]:
    """Return the latest send of each id, in order."""
    return list({send.id: send for send in world.network.sends if send.kind == kind}.values())


async def settled(world: World, running: Running, phone: Phone) -> None:
    """Exchange a message in each direction, after which the session is no longer being set up."""
    kind, body = phone.write(text("settled"))
    world.network.deliver(NUMBER, kind, id="settled", body=body)
    await acknowledged(world, "settled")


async def without_sessions(world: World, running: Running) -> Running:
    """Start the next owner, whose sessions were deleted, as `docs/operations.md` recommends."""
    await running.stopped()
    async with world.database.transaction() as connection:
        await sessions.clear(connection, BUSINESS)
    return await world.start(node="second")


async def test_a_message_on_a_lost_session_is_requested_again_and_posted_once(world: World) -> None:
    running, phone, _ = await with_session(world)
    await settled(world, running, phone)
    running = await without_sessions(world, running)
    before = len(world.network.sends)
    kind, body = phone.write(text("lost"))
    assert kind == frames.MESSAGE
    world.network.deliver(NUMBER, kind, id="lost", body=body, timestamp=1_700_000_123_000)
    await world.network.signals.until(lambda: len(world.network.sends) >= before + 2)
    null, request = world.network.sends[before : before + 2]
    assert (null.kind, null.to, request.kind, request.refs) == (frames.PREKEY, NUMBER, frames.RETRY, ["lost"])
    assert phone.read(null.kind, null.body) == {"type": "null"}

    kind, body = phone.write(text("lost"))
    for _ in range(2):
        world.network.deliver(NUMBER, kind, id="again", body=body, refs=["lost"], timestamp=1_700_000_456_000)
    kind, body = phone.write(text("next"))
    world.network.deliver(NUMBER, kind, id="next", body=body)
    await world.sink.signals.until(lambda: "next" in received(world))
    (message,) = received(world)["lost"]
    assert (message["text"], message["timestamp"], message["type"]) == ({"body": "lost"}, "1700000123", "text")
    assert errors(world) == []
    async with world.database.reading() as connection:
        (row,) = await messages.list_progress(connection, BUSINESS, ["lost"])
    assert row.kind == "text"
    await running.stopped()


async def test_resends_to_a_peer_are_limited_per_hour(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_repair, "MAX_RESENT", 2)
    clock = ManualClock()
    running, phone, first = await with_session(world, clock=clock)
    await settled(world, running, phone)
    ids = [first, *[(await running.client.send(NUMBER)).id for _ in range(2)]]
    await world.network.signals.until(lambda: len(world.network.sends) == 3)

    def repeated() -> set[str]:
        return {send.refs[0] for send in world.network.sends if send.refs}

    world.network.deliver(NUMBER, frames.RETRY, id="all", refs=ids)
    await acknowledged(world, "all")
    await world.network.signals.until(lambda: len(repeated()) == 2)
    world.network.deliver(NUMBER, frames.RETRY, id="again", refs=ids)
    await acknowledged(world, "again")
    assert len(repeated()) == 2
    clock.advance(session_repair.PERIOD + 1)
    world.network.deliver(NUMBER, frames.RETRY, id="later", refs=ids[2:])
    await world.network.signals.until(lambda: repeated() == set(ids))
    await running.stopped()


@pytest.mark.parametrize("moment", ["before the response to the request", "after the message came again"])
async def test_a_kill_during_session_repair_still_posts_the_message_once(world: World, moment: str) -> None:
    running, phone, _ = await with_session(world)
    await settled(world, running, phone)
    running = await without_sessions(world, running)
    if moment.startswith("before"):
        world.network.policy = lambda send: HOLD
    kind, body = phone.write(text("lost"))
    world.network.deliver(NUMBER, kind, id="lost", body=body)
    await world.network.signals.until(lambda: any(send.kind == frames.RETRY for send in world.network.sends))
    await running.killed()
    world.network.policy = lambda send: None
    running = await world.start(node="third")
    await world.connected(running)
    await world.network.signals.until(lambda: len(sent(world, frames.RETRY)) == 1)
    null = sent(world, frames.PREKEY)[-1]
    assert phone.read(null.kind, null.body) == {"type": "null"}
    kind, body = phone.write(text("lost"))
    world.network.deliver(NUMBER, kind, id="again", body=body, refs=["lost"])
    await world.sink.signals.until(lambda: "lost" in received(world))
    if moment.startswith("after"):
        await running.killed()
        running = await world.start(node="fourth")
        await world.connected(running)
        world.network.deliver(NUMBER, kind, id="again", body=body, refs=["lost"])
        kind, body = phone.write(text("next"))
        world.network.deliver(NUMBER, kind, id="next", body=body)
        await world.sink.signals.until(lambda: "next" in received(world))
    assert len(received(world)["lost"]) == 1
    assert errors(world) == []
    await running.stopped()


async def test_waiting_messages_use_the_new_session(world: World) -> None:
    running, phone, _ = await with_session(world)
    await settled(world, running, phone)
    running = await without_sessions(world, running)
    gate = world.network.gates[frames.Fetch] = asyncio.Event()
    kind, body = phone.write(text("lost"))
    world.network.deliver(NUMBER, kind, id="lost", body=body)
    await world.network.signals.until(lambda: len(world.network.fetches) == 2)
    response = await running.client.send(NUMBER, "meanwhile")
    gate.set()
    await world.network.signals.until(lambda: response.id in world.network.ids_sent())
    null, _, message = world.network.sends[-3:]
    assert phone.read(null.kind, null.body) == {"type": "null"}
    assert phone.read(message.kind, message.body)["text"] == {"body": "meanwhile"}
    assert len(world.network.fetches) == 2
    await running.stopped()


async def test_undecryptable_messages_cost_a_bounded_number_of_bundles_and_requests(world: World) -> None:
    clock = ManualClock()
    running, phone, _ = await with_session(world, clock=clock)
    await settled(world, running, phone)
    fetches = len(world.network.fetches)

    def requested_count() -> int:
        return sum(len(send.refs) for send in sent(world, frames.RETRY))

    for n in range(600):
        world.network.deliver(NUMBER, frames.MESSAGE, id=f"bad-{n}", body=GARBAGE + b"%d" % n)
        if n % 100 == 99:
            await acknowledged(world, f"bad-{n}")
    # Requests for resending are sent by another task, later than the acknowledgement.
    await world.network.signals.until(lambda: requested_count() >= session_repair.MAX_REQUESTED)
    kind, body = phone.write(text("good"))
    world.network.deliver(NUMBER, kind, id="good", body=body)
    await world.sink.signals.until(lambda: "good" in received(world))
    assert len(world.network.fetches) - fetches <= session_repair.MAX_RENEWALS
    assert requested_count() == session_repair.MAX_REQUESTED
    # The phone reads what it gets on the session that was opened, and replies there: nothing more happens in this hour.
    for send in sent(world, frames.PREKEY)[1:]:
        phone.read(send.kind, send.body)
    kind, body = phone.write(text("settled again"))
    world.network.deliver(NUMBER, kind, id="settled again", body=body)
    for n in range(10):
        world.network.deliver(NUMBER, frames.MESSAGE, id=f"worse-{n}", body=GARBAGE)
        await acknowledged(world, f"worse-{n}")
    assert len(world.network.fetches) - fetches <= session_repair.MAX_RENEWALS
    await running.stopped()


async def test_no_further_session_is_opened_until_the_new_one_got_a_response(world: World) -> None:
    running, phone, _ = await with_session(world)
    await settled(world, running, phone)
    running = await without_sessions(world, running)
    fetches = len(world.network.fetches)
    late = [phone.write(text(str(n))) for n in range(5)]
    for n, (kind, body) in enumerate(late):
        world.network.deliver(NUMBER, kind, id=f"late-{n}", body=body)
        await acknowledged(world, f"late-{n}")
        await world.network.signals.until(lambda: len(world.network.fetches) == fetches + 1)
    requested = [ref for send in sent(world, frames.RETRY) for ref in send.refs]
    await world.network.signals.until(
        lambda: [ref for send in sent(world, frames.RETRY) for ref in send.refs] == [f"late-{n}" for n in range(5)]
    )
    assert len(world.network.fetches) == fetches + 1, requested
    await running.stopped()


async def test_a_lost_message_is_reported_by_id_after_the_timeout(world: World) -> None:
    clock = ManualClock()
    running, _, _ = await with_session(world, clock=clock)
    for id in ("bad-1", "bad-1", "bad-2"):
        world.network.deliver(NUMBER, frames.MESSAGE, id=id, body=GARBAGE)
    await acknowledged(world, "bad-1", "bad-2")
    await running.shard.recovery.recovering.run_once()
    assert errors(world) == []
    await running.killed()
    running = await world.start(node="second", clock=clock)
    await world.connected(running)
    # The acknowledgement was lost: the message is delivered again, to the next owner.
    world.network.deliver(NUMBER, frames.MESSAGE, id="bad-1", body=GARBAGE)
    world.network.deliver(NUMBER, frames.MESSAGE, id="bad-3", body=GARBAGE)
    await acknowledged(world, "bad-3")
    clock.advance(301)
    await running.shard.recovery.recovering.run_once()
    await world.sink.signals.until(lambda: len(errors(world)) == 3)
    assert errors(world) == [f"the message bad-{n} from {NUMBER} could not be decrypted" for n in (1, 2, 3)]
    await running.stopped()


async def test_a_message_resent_after_its_loss_was_reported_is_still_posted(world: World) -> None:
    clock = ManualClock()
    running, phone, _ = await with_session(world, clock=clock)
    world.network.deliver(NUMBER, frames.MESSAGE, id="late", body=GARBAGE)
    await acknowledged(world, "late")
    clock.advance(301)
    await running.shard.recovery.recovering.run_once()
    kind, body = phone.write(text("late"))
    world.network.deliver(NUMBER, kind, id="again", body=body, refs=["late"])
    await world.sink.signals.until(lambda: "late" in received(world) and len(errors(world)) == 1)
    await running.stopped()


async def test_a_sender_cannot_resend_the_message_of_another(world: World) -> None:
    running, phone, message = await with_session(world)
    world.network.deliver("15550110002", frames.MESSAGE, id="theirs", body=GARBAGE)
    await acknowledged(world, "theirs")
    for n, ref in enumerate(("theirs", message)):
        kind, body = phone.write(text("forged"))
        world.network.deliver(NUMBER, kind, id=f"forged-{n}", body=body, refs=[ref])
    await acknowledged(world, "forged-0", "forged-1")
    assert received(world) == {}
    await running.stopped()


# Requests of a recipient for resending.


def again(world: World, message: str) -> list[frames.Send]:
    return [
        send
        for send in {send.id: send for send in world.network.sends}.values()
        if send.refs == [message] and send.kind in (frames.PREKEY, frames.MESSAGE)
    ]


async def test_a_recipient_without_a_session_gets_the_message_again_on_a_new_one(world: World) -> None:
    running, phone, _ = await with_session(world)
    await settled(world, running, phone)
    message = (await running.client.send(NUMBER, "precious")).id
    await world.network.signals.until(lambda: message in world.network.ids_sent())
    # The recipient's session is gone: only a request arrives, and nothing that opens a session.
    phone.record = None
    for _ in range(2):
        world.network.deliver(NUMBER, frames.RETRY, id="retry-1", refs=[message])
    await world.network.signals.until(lambda: len(again(world, message)) == 1)
    (send,) = again(world, message)
    assert (send.kind, send.id != message) == (frames.PREKEY, True)
    assert phone.read(send.kind, send.body)["text"] == {"body": "precious"}
    world.network.deliver(NUMBER, frames.DELIVERED, id="d", refs=[message])
    await world.sink.signals.until(lambda: world.sink.statuses_of(message) == ["sent", "delivered"])
    # Delivered: nothing is kept, nothing is sent again.
    world.network.deliver(NUMBER, frames.RETRY, id="retry-2", refs=[message])
    await acknowledged(world, "retry-2")
    async with world.database.reading() as connection:
        assert await messages.list_kept(connection, BUSINESS, [message]) == []
    assert len(again(world, message)) == 1
    await running.stopped()


async def test_requested_messages_use_the_session_of_a_received_null_message(world: World) -> None:
    running, phone, _ = await with_session(world)
    await settled(world, running, phone)
    ids = [(await running.client.send(NUMBER, f"precious {n}")).id for n in range(3)]
    await world.network.signals.until(lambda: set(ids) <= set(world.network.ids_sent()))
    fetches = len(world.network.fetches)
    phone.record = None
    kind, body = phone.write(b'{"type":"null"}', world.network.business_bundle())
    world.network.deliver(NUMBER, kind, id="null", body=body)
    world.network.deliver(NUMBER, frames.RETRY, id="retry", refs=ids)
    await world.network.signals.until(lambda: all(again(world, id) for id in ids))
    texts = [phone.read(send.kind, send.body)["text"] for id in ids for send in again(world, id)]
    assert texts == [{"body": f"precious {n}"} for n in range(3)]
    assert len(world.network.fetches) == fetches
    await running.stopped()


async def test_a_message_is_resent_only_to_its_recipient_and_only_a_few_times(world: World) -> None:
    running, _, _ = await with_session(world)
    message = (await running.client.send(NUMBER, "precious")).id
    await world.network.signals.until(lambda: message in world.network.ids_sent())
    world.network.deliver("15550110002", frames.RETRY, id="thief", refs=[message, "unknown", ""])
    await acknowledged(world, "thief")
    for n in range(MAX_ATTEMPTS + 3):
        world.network.deliver(NUMBER, frames.RETRY, id=f"retry-{n}", refs=[message])
        await acknowledged(world, f"retry-{n}")
    await soon(lambda: len(again(world, message)) == MAX_ATTEMPTS)
    assert {send.to for send in again(world, message)} == {NUMBER}
    assert len({send.id for send in again(world, message)}) == MAX_ATTEMPTS
    await running.stopped()


async def test_nothing_is_resent_to_an_unacknowledged_identity(world: World) -> None:
    await world.configure(show_security_notifications=True)
    running, _, _ = await with_session(world)
    message = (await running.client.send(NUMBER, "precious")).id
    await world.sink.signals.until(lambda: "sent" in world.sink.statuses_of(message))
    (new,) = world.add_phones(NUMBER)
    kind, body = new.write(b'{"type":"null"}', world.network.business_bundle())
    world.network.deliver(NUMBER, kind, id="null", body=body)
    world.network.deliver(NUMBER, frames.RETRY, id="retry", refs=[message])
    await world.sink.signals.until(lambda: world.sink.statuses_of(message) == ["sent", "failed"])
    assert again(world, message) == []
    await running.stopped()


async def test_a_requested_resend_survives_the_kill_of_its_owner(world: World) -> None:
    running, phone, _ = await with_session(world)
    await settled(world, running, phone)
    message = (await running.client.send(NUMBER, "precious")).id
    await world.sink.signals.until(lambda: "sent" in world.sink.statuses_of(message))
    phone.record = None
    world.network.policy = lambda send: HOLD
    world.network.deliver(NUMBER, frames.RETRY, id="retry", refs=[message])
    await world.network.signals.until(lambda: len(again(world, message)) == 1)
    await running.killed()
    world.network.policy = lambda send: None
    running = await world.start(node="second")
    await world.connected(running)
    world.network.deliver(NUMBER, frames.RETRY, id="retry", refs=[message])
    await acknowledged(world, "retry")
    (send,) = again(world, message)
    assert phone.read(send.kind, send.body)["text"] == {"body": "precious"}
    with pytest.raises(e2ee.DuplicateMessage):
        phone.read(send.kind, send.body)
    await running.stopped()


async def test_an_expired_resend_fails_its_message(world: World) -> None:
    running, _, message = await with_session(world)
    world.network.deliver(NUMBER, frames.RETRY, id="retry", refs=[message])
    await world.network.signals.until(lambda: len(again(world, message)) == 1)
    world.network.deliver(NUMBER, frames.EXPIRED, id="e", refs=[again(world, message)[0].id])
    await world.sink.signals.until(lambda: world.sink.statuses_of(message) == ["sent", "failed"])
    await running.stopped()
