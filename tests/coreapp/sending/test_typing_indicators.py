"""Typing indicators beside read marks: encrypted, sent once to a recipient who is online, and never queued."""

from __future__ import annotations

import json

from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tests.manual_clock import ManualClock
from tidings.storage.business import jobs
from tidings.wire import core
from tidings.wire import device as frames

NUMBER = "15550110001"
NOW = 1_700_000_000


async def started(world: World, clock: ManualClock | None = None) -> tuple[Running, Phone]:
    (phone,) = world.add_phones(NUMBER)
    running = await world.start(clock=clock or ManualClock(NOW))
    await world.connected(running)
    await running.client.check(NUMBER)
    return running, phone


async def write(world: World, phone: Phone, message_id: str) -> None:
    """Send a text of the phone, and wait until the business has it."""
    content = json.dumps({"type": "text", "text": {"body": message_id}}).encode()
    kind, body = phone.write(content, world.network.business_bundle(one_time=0))
    world.network.deliver(phone.number, kind, id=message_id, body=body, timestamp=NOW * 1000)
    await world.network.signals.until(lambda: message_id in world.network.acknowledged)


async def mark(running: Running, message_id: str, *, typing: bool = True) -> None:
    response = await running.client.call(lambda n: core.MarkRead(n, BUSINESS, message_id, "r1", typing=typing))
    assert isinstance(response, core.Done)


def indicators(world: World) -> list[frames.Send]:
    return [send for send in world.network.sends if send.kind == "transient"]


async def text_of(world: World, running: Running, phone: Phone) -> str:
    """Send a text to the phone, and return it as the phone reads it."""
    accepted = await running.client.send(NUMBER)
    await world.network.signals.until(lambda: accepted.id in [send.id for send in world.network.sends])
    (send,) = [send for send in world.network.sends if send.id == accepted.id]
    found = phone.read(send.kind, send.body)["text"]
    assert isinstance(found, dict)
    return str(found["body"])


async def test_an_indicator_is_encrypted_for_the_sender_of_the_message(world: World) -> None:
    running, phone = await started(world)
    await write(world, phone, "a")
    await mark(running, "a")
    await world.network.signals.until(lambda: bool(indicators(world)))
    (sent,) = indicators(world)
    assert (sent.sender, sent.to, sent.ttl, sent.trace, sent.refs) == (BUSINESS, NUMBER, 25, "r1", [])
    assert b"typing" not in sent.body
    assert phone.read(frames.MESSAGE, sent.body) == {"type": "typing", "context": {"id": "a"}}
    assert await text_of(world, running, phone) == "hello"


async def test_a_dropped_indicator_affects_no_message_and_has_no_status(world: World) -> None:
    running, phone = await started(world)
    # As a network node of an earlier release responds.
    world.network.policy = lambda send: frames.INVALID if send.kind == "transient" else None
    await write(world, phone, "a")
    await mark(running, "a")
    await world.network.signals.until(lambda: bool(indicators(world)))
    assert await text_of(world, running, phone) == "hello"
    await running.stopped()
    async with world.database.reading() as connection:
        assert await jobs.count(connection) == 0
    assert {status for _, status in world.sink.labels()} <= {"sent", "received"}
    assert len(indicators(world)) == 1


async def test_indicators_to_one_recipient_are_a_second_apart(world: World) -> None:
    clock = ManualClock(NOW)
    running, phone = await started(world, clock)
    await write(world, phone, "a")
    for seconds in (0.0, 0.9, 0.2, 0.5):
        clock.advance(seconds)
        await mark(running, "a")
    await world.network.signals.until(lambda: len(indicators(world)) == 2)
    assert await text_of(world, running, phone) == "hello"
    assert len(indicators(world)) == 2


async def test_a_mark_without_an_indicator_sends_none(world: World) -> None:
    running, phone = await started(world)
    await write(world, phone, "a")
    await mark(running, "a", typing=False)
    assert await text_of(world, running, phone) == "hello"
    assert not indicators(world)


async def test_no_indicator_follows_1000_unanswered_messages(world: World) -> None:
    clock = ManualClock(NOW)
    running, phone = await started(world, clock)
    await write(world, phone, "a")
    record = running.shard.peers.sessions.in_memory(NUMBER)
    assert record is not None
    for _ in range(999):
        record.encrypt(b"")
    await mark(running, "a")
    await world.network.signals.until(lambda: len(indicators(world)) == 1)
    clock.advance(2.0)
    await mark(running, "a")
    assert await text_of(world, running, phone) == "hello"
    assert len(indicators(world)) == 1
    # The recipient's answer begins another chain.
    await write(world, phone, "b")
    clock.advance(2.0)
    await mark(running, "b")
    await world.network.signals.until(lambda: len(indicators(world)) == 2)


async def test_an_indicator_while_the_network_is_away_is_not_sent_later(world: World) -> None:
    clock = ManualClock(NOW)
    running, phone = await started(world, clock)
    await write(world, phone, "a")
    world.network.away()
    await world.network.signals.until(lambda: world.network.live is None)
    await mark(running, "a")
    await world.network.listen()
    await world.connected(running)
    clock.advance(2.0)
    assert await text_of(world, running, phone) == "hello"
    assert not indicators(world)
