"""Order of messages and uniqueness of keys, whatever happens concurrently.

The oracle is the recipient: a second message under one key, or one that was sent uncommitted, does not decrypt.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from coreapp.peers import sessions
from tests.coreapp.conftest import Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.scripted_network import HOLD
from tidings.storage.business import jobs
from tidings.storage.business.jobs import JobForm
from tidings.wire import core
from tidings.wire import device as frames

NUMBERS = [f"1555011000{n}" for n in range(1, 6)]


class Readers:
    """Phones that read each message once, by its id, as it arrives, and reply to some of them."""

    def __init__(self, world: World, phones: list[Phone], *, reply_every: int = 0) -> None:
        self.world = world
        self.phones = {phone.number: phone for phone in phones}
        self.texts: dict[str, list[str]] = {phone.number: [] for phone in phones}
        self.seen: dict[str, bytes] = {}
        self.replies = 0
        self.reply_every = reply_every

    def __call__(self, send: frames.Send) -> str | None:
        if send.id in self.seen:
            assert self.seen[send.id] == send.body, "the same message with other bytes"
            return None
        self.seen[send.id] = send.body
        content = self.phones[send.to].read(send.kind, send.body)
        self.texts[send.to].append(content["text"]["body"])  # type: ignore[index]
        if self.reply_every and len(self.seen) % self.reply_every == 0:
            self.replies += 1
            kind, body = self.phones[send.to].write(b'{"type":"text","text":{"body":"ok"}}')
            self.world.network.deliver(send.to, kind, id=f"reply-{self.replies}", body=body)
        return None


async def send_all(running: Running, texts: list[tuple[str, str]]) -> list[core.Accepted]:
    """Send all messages at once, in this order on the link."""
    responses = await asyncio.gather(*(running.client.send(to, text) for to, text in texts))
    assert all(isinstance(response, core.Accepted) for response in responses), responses
    return list(responses)


@pytest.mark.parametrize("limit", [1, 10_000])
async def test_messages_decrypt_once_and_in_order_under_any_interleaving(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(sessions, "CACHED", limit)
    phones = world.add_phones(*NUMBERS)
    readers = Readers(world, phones, reply_every=3)
    world.network.policy = readers
    running = await world.start()
    await world.connected(running)
    await running.client.check(*NUMBERS)

    chance = random.Random(7)
    sent: dict[str, list[str]] = {number: [] for number in NUMBERS}
    total = 0
    for _ in range(8):
        batch = []
        for _ in range(25):
            number = chance.choice(NUMBERS)
            text = f"text {total}"
            total += 1
            sent[number].append(text)
            batch.append((number, text))
        await send_all(running, batch)
    await world.network.signals.until(lambda: len(readers.seen) == total)
    assert readers.texts == sent
    await world.sink.signals.until(
        lambda: sum(label[1] == "received" for label in world.sink.labels()) == readers.replies
    )
    posted = [label for label in world.sink.labels() if label[1] == "received"]
    assert len(set(posted)) == len(posted)


async def test_messages_queue_behind_those_waiting_for_a_session(world: World) -> None:
    (phone,) = world.add_phones(NUMBERS[0])
    readers = Readers(world, [phone])
    world.network.policy = readers
    world.network.gates[frames.Fetch] = asyncio.Event()
    running = await world.start()
    await world.connected(running)
    await running.client.check(phone.number)

    await send_all(running, [(phone.number, "1"), (phone.number, "2")])
    await world.network.signals.until(lambda: len(world.network.fetches) == 1)
    # While the queue waits for keys, the recipient opens a session.
    kind, body = phone.write(b'{"type":"text","text":{"body":"me first"}}', world.network.business_bundle())
    world.network.deliver(phone.number, kind, id="in-1", body=body)
    await world.network.signals.until(lambda: world.network.acknowledged == ["in-1"])
    await send_all(running, [(phone.number, "3"), (phone.number, "4")])
    assert world.network.sends == []
    world.network.gates[frames.Fetch].set()
    await send_all(running, [(phone.number, "5")])
    await world.network.signals.until(lambda: len(readers.seen) == 5)
    assert readers.texts[phone.number] == ["1", "2", "3", "4", "5"]


async def test_a_registration_during_a_key_fetch_gives_a_session_with_the_new_keys(
    world: World,
) -> None:
    world.add_phones(NUMBERS[0])
    world.network.gates[frames.Fetch] = asyncio.Event()
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBERS[0])
    await running.client.send(NUMBERS[0], "hello")
    await world.network.signals.until(lambda: len(world.network.fetches) == 1)
    world.network.deliver(NUMBERS[0], frames.IDENTITY, id="anew-1")
    await world.network.signals.until(lambda: world.network.acknowledged == ["anew-1"])
    world.network.gates[frames.Fetch].set()
    await world.network.signals.until(lambda: len(world.network.fetches) == 2)
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    send = world.network.sends[0]
    world.network.phones[NUMBERS[0]].read(send.kind, send.body)


async def test_after_an_identity_change_the_next_message_opens_a_new_session(world: World) -> None:
    (phone,) = world.add_phones(NUMBERS[0])
    running = await world.start()
    await world.connected(running)
    await running.client.check(phone.number)
    await running.client.send(phone.number, "to the old phone")
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    (anew,) = world.add_phones(NUMBERS[0])
    world.network.deliver(phone.number, frames.IDENTITY, id="anew-1")
    await world.network.signals.until(lambda: world.network.acknowledged == ["anew-1"])
    await running.client.send(phone.number, "to the new phone")
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    send = world.network.sends[1]
    assert send.kind == frames.PREKEY
    assert anew.read(send.kind, send.body)["text"] == {"body": "to the new phone"}
    assert len(world.network.fetches) == 2


async def test_messages_accepted_before_a_kill_arrive_in_order_with_the_same_bytes(
    world: World,
) -> None:
    (phone,) = world.add_phones(NUMBERS[0])
    readers = Readers(world, [phone])
    running = await world.start()
    await world.connected(running)
    await running.client.check(phone.number)
    world.network.policy = lambda send: HOLD
    accepted = await send_all(running, [(phone.number, str(n)) for n in range(50)])
    await world.network.signals.until(lambda: len(world.network.sends) == 50)
    before = list(world.network.sends)
    await running.killed()

    world.network.sends.clear()
    world.network.connections_of_sends.clear()
    world.network.policy = readers
    again = await world.start(node="second", owned=False)
    await world.network.signals.until(lambda: len(world.network.sends) >= 50)
    await world.owner(again)
    await send_all(again, [(phone.number, str(n)) for n in range(50, 60)])
    await world.network.signals.until(lambda: len(readers.seen) == 60)
    assert [send.id for send in world.network.sends[:50]] == [response.id for response in accepted]
    assert [send.body for send in world.network.sends[:50]] == [send.body for send in before]
    assert readers.texts[phone.number] == [str(n) for n in range(60)]


async def test_messages_accepted_without_a_session_survive_a_restart_in_order(world: World) -> None:
    (phone,) = world.add_phones(NUMBERS[0])
    world.network.gates[frames.Fetch] = asyncio.Event()
    running = await world.start()
    await world.connected(running)
    await running.client.check(phone.number)
    accepted = await send_all(running, [(phone.number, str(n)) for n in range(30)])
    async with world.database.reading() as connection:
        waiting = await jobs.list_jobs(connection, 0)
    assert [job.id for job in waiting] == [response.id for response in accepted]
    assert {job.state for job in waiting} == {JobForm.NEW}
    assert all(b"hello" not in job.body and b'"text"' not in job.body for job in waiting)
    await running.stopped()

    readers = Readers(world, [phone])
    world.network.policy = readers
    world.network.gates.clear()
    await world.start(node="second")
    await world.network.signals.until(lambda: len(readers.seen) == 30)
    assert readers.texts[phone.number] == [str(n) for n in range(30)]


async def test_messages_to_a_recipient_without_keys_fail_and_others_are_sent(world: World) -> None:
    good, gone = world.add_phones(NUMBERS[0], NUMBERS[1])
    running = await world.start()
    await world.connected(running)
    await running.client.check(good.number, gone.number)
    del world.network.phones[gone.number]
    failed, sent = await send_all(running, [(gone.number, "x"), (good.number, "y")])
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 2)
    assert world.sink.statuses_of(sent.id) == ["sent"]
    assert world.sink.statuses_of(failed.id) == ["failed"]
    (post,) = [post for post in world.sink.posts if post.label == (failed.id, "failed")]
    assert post.body["statuses"][0]["errors"][0]["code"] == 1013
    await world.until_jobs(0)


async def test_a_refused_key_fetch_for_one_recipient_does_not_fail_the_others(world: World) -> None:
    """A refused fetch is repeated for each recipient, and a refusal does not count as «not on the network»."""
    (phone,) = world.add_phones(NUMBERS[0])
    world.network.failures[frames.Fetch] = frames.BAD_FRAME
    running = await world.start()
    await world.connected(running)
    await running.client.check(phone.number)
    response = await running.client.send(phone.number)
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    assert world.sink.labels() == [(response.id, "failed")]
    assert world.sink.posts[0].body["statuses"][0]["errors"][0]["code"] == 500
