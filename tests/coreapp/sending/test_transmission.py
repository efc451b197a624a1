"""Transmission: within a window, again after every reconnect, in order, until the network accepts or refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coreapp.sending import transmission
from harness.polling import until
from tests.coreapp.conftest import World
from tests.coreapp.scripted_network import HOLD
from tidings.client import held_back
from tidings.wire import device as frames

NUMBER = "15550110001"


async def test_at_most_a_window_of_messages_is_unacknowledged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transmission, "WINDOW", 3)
    world.add_phones(NUMBER)
    world.network.policy = lambda send: HOLD
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    ids = [(await running.client.send(NUMBER, str(n))).id for n in range(8)]
    await world.network.signals.until(lambda: len(world.network.sends) == 3)
    # Responses arrive out of order, and each lets one more message be sent.
    for count, confirmed in enumerate((1, 0, 2, 4, 3), 4):
        world.network.accept(ids[confirmed])
        await world.network.signals.until(lambda count=count: len(world.network.sends) == count)  # type: ignore[misc]
    assert world.network.ids_sent() == ids
    assert running.shard.sending.transmitter.unacknowledged == 3


async def test_the_window_also_limits_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transmission, "WINDOW_BYTES", 8000)
    world.add_phones(NUMBER)
    world.network.policy = lambda send: HOLD
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    ids = [(await running.client.send(NUMBER, "x" * 3000)).id for _ in range(5)]
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    world.network.accept(ids[0])
    await world.network.signals.until(lambda: len(world.network.sends) == 3)


async def test_unacknowledged_messages_are_resent_unchanged_in_order_after_a_reconnect(
    world: World,
) -> None:
    world.add_phones(NUMBER)
    world.network.policy = lambda send: HOLD
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    ids = [(await running.client.send(NUMBER, str(n))).id for n in range(5)]
    await world.network.signals.until(lambda: len(world.network.sends) == 5)
    world.network.accept(ids[2])
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    before = {send.id: send.body for send in world.network.sends}
    world.network.drop()
    await world.network.signals.until(lambda: len(world.network.sends) == 9)
    again = world.network.sends[5:]
    assert [send.id for send in again] == [ids[0], ids[1], ids[3], ids[4]]
    assert all(send.body == before[send.id] for send in again)


@pytest.mark.parametrize(
    ("reason", "code"),
    [(frames.BLOCKED, 1007), (frames.NO_SUCH_NUMBER, 1013), (frames.TOO_LARGE, 500), (frames.INVALID, 500)],
)
async def test_a_refusal_is_reported_as_failed_with_its_code(world: World, reason: str, code: int) -> None:
    world.add_phones(NUMBER)
    world.network.policy = lambda send: reason
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    message = (await running.client.send(NUMBER)).id
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    assert world.sink.labels() == [(message, "failed")]
    (status,) = world.sink.posts[0].body["statuses"]
    assert status["errors"][0]["code"] == code
    assert status["recipient_id"] == status["message"]["recipient_id"] == NUMBER
    await world.until_jobs(0)


async def test_a_message_to_a_blocking_recipient_is_reported_as_sent_if_configured(world: World) -> None:
    world.add_phones(NUMBER)
    blocked: list[str] = []

    def policy(send: Any) -> str | None:
        if not blocked:
            blocked.append(send.id)
            return frames.BLOCKED
        return None

    world.network.policy = policy
    running = await world.start(blocked_is_sent=True)
    await world.connected(running)
    await running.client.check(NUMBER)
    ids = [(await running.client.send(NUMBER, text)).id for text in ("blocked", "and not any more")]
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 2)
    assert sorted(world.sink.labels()) == sorted((message_id, "sent") for message_id in ids)
    assert blocked == ids[:1]
    await world.until_jobs(0)


async def test_messages_refused_as_overloaded_are_resent_in_order(world: World) -> None:
    world.add_phones(NUMBER)
    refused: set[str] = set()
    accepted: list[str] = []

    def policy(send: Any) -> str | None:
        # Overloaded until the first one is sent again.
        if not accepted and send.id not in refused:
            refused.add(send.id)
            return frames.OVERLOADED
        accepted.append(send.id)
        return None

    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    world.network.policy = policy
    ids = [(await running.client.send(NUMBER, str(n))).id for n in range(6)]
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 6)
    assert accepted == ids
    assert {label[1] for label in world.sink.labels()} == {"sent"}


async def test_overloaded_messages_are_resent_before_later_ones_although_others_are_held_back(world: World) -> None:
    full, slow, later = NUMBER, "15550110002", "15550110003"
    world.add_phones(full, slow, later)
    tried: list[str] = []
    accepted: list[str] = []

    def policy(send: Any) -> str | None:
        is_first = send.id not in tried
        tried.append(send.id)
        if send.to == full and tried[0] == send.id:
            return frames.MAILBOX_FULL
        if send.to in (full, slow) and is_first:
            return frames.OVERLOADED
        accepted.append(send.id)
        return None

    running = await world.start()
    await world.connected(running)
    await running.client.check(full, slow, later)
    world.network.policy = policy
    gate = world.network.gates[frames.Send] = asyncio.Event()
    ids = [(await running.client.send(number)).id for number in (full, full, slow, slow)]
    transmitter = running.shard.sending.transmitter
    await until(lambda: transmitter.unacknowledged == 4)
    gate.set()
    await until(lambda: transmitter.kept_back == 2)
    last = (await running.client.send(later)).id
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 3)
    assert accepted == [*ids[2:], last]
    assert tried[:4] == ids, "all four were on their way together"


async def test_messages_to_a_full_mailbox_are_sent_later_in_order_and_delay_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transmission, "WINDOW", 3)
    monkeypatch.setattr(held_back, "LEAST_SECONDS", 0.05)
    other = "15550110002"
    world.add_phones(NUMBER, other)
    full, taken = True, []

    def policy(send: Any) -> str | None:
        if send.to == NUMBER and full:
            return frames.MAILBOX_FULL
        taken.append(send.id)
        return None

    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    await running.client.check(other)
    world.network.policy = policy
    waiting = [(await running.client.send(NUMBER, str(n))).id for n in range(20)]
    sent = [(await running.client.send(other, str(n))).id for n in range(20)]
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 20)
    assert taken == sent, "far more than the window hold nobody up"
    await world.until_jobs(20)
    full = False
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 40)
    assert taken == sent + waiting
    assert {label[1] for label in world.sink.labels()} == {"sent"}


async def test_messages_accepted_during_a_network_outage_are_sent_afterwards(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    await running.client.send(NUMBER, "first")
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 1)
    world.network.away()
    ids = [(await running.client.send(NUMBER, str(n))).id for n in range(5)]
    await world.network.listen()
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 6)
    assert world.network.ids_sent()[1:] == ids


async def test_the_job_queue_limit_holds_under_a_burst_and_admission_resumes_at_half(world: World) -> None:
    world.add_phones(NUMBER)
    world.network.policy = lambda send: HOLD
    running = await world.start(job_queue_limit=10)
    await world.connected(running)
    await running.client.check(NUMBER)
    responses = await asyncio.gather(*(running.client.send(NUMBER, str(n)) for n in range(50)))
    ids = [response.id for response in responses if hasattr(response, "id")]
    assert len(ids) == 10
    assert {response.code for response in responses if not hasattr(response, "id")} == {1016}
    await world.network.signals.until(lambda: len(world.network.sends) == 10)
    world.network.accept(*ids[:4])
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 4)
    assert (await running.client.send(NUMBER)).code == 1016
    world.network.accept(ids[4])
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 5)
    assert hasattr(await running.client.send(NUMBER), "id")
