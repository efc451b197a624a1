"""Statuses wait until their message's sender can know its id, and nothing else waits for that."""

from __future__ import annotations

import time
from pathlib import Path

from coreapp.settings import Settings
from coreapp.webhook.status_delay import StatusDelay
from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import Running, World
from tests.coreapp.group_scene import ANN, group_scene
from tests.coreapp.signals import soon
from tests.coreapp.sink import Post
from tests.manual_clock import ManualClock
from tidings.storage.business.callbacks import Callback
from tidings.wire import device as frames

NUMBER, OTHER = "15550110001", "15550110002"
DEFAULT: float = Settings.model_fields["status_delay"].default  # seconds
START = int(ManualClock().now() * 1000)


def row(message_id: str, due_at: int) -> Callback:
    return Callback(1, 0, "", message_id, "status_change", b"", START, due_at=due_at)


def test_a_status_is_due_one_delay_after_the_response() -> None:
    clock = ManualClock()
    delay = StatusDelay(1.0, clock)
    clock.advance(10)
    delay.accepting("a")
    clock.advance(5)
    delay.responded("a")
    assert delay.due_at("a", START + 15_400) == START + 16_000
    assert delay.due_at("a", START + 16_000) == 0
    assert delay.due_at("of long ago", START + 15_400) == 0


def test_the_delay_of_an_early_status_counts_from_the_response() -> None:
    clock = ManualClock()
    delay = StatusDelay(1.0, clock)
    for message_id in ("slow", "slower"):
        delay.accepting(message_id)
    rows = [row(message_id, delay.due_at(message_id, START)) for message_id in ("slow", "slower")]
    assert [callback.due_at for callback in rows] == [START + 1000] * 2
    clock.advance(7)
    # One response is sent before the row of its status is on disk, the other right after.
    delay.responded("slow")
    clock.advance(0.25)
    delay.committed(rows)
    assert [callback.due_at for callback in rows] == [START + 8000, START + 8250]
    assert [callback.created_at for callback in rows] == [START + 8000, START + 8250]


def test_messages_of_an_earlier_owner_count_as_responded_to_at_the_start() -> None:
    delay = StatusDelay(1.0, ManualClock())
    assert delay.due_at("inherited", START + 300) == START + 1000
    assert delay.due_at("inherited", START + 1000) == 0


def test_response_times_beyond_the_limit_are_evicted_oldest_first() -> None:
    clock = ManualClock()
    delay = StatusDelay(1.0, clock, limit=3)
    clock.advance(10)
    for n in range(5):
        delay.accepting(str(n))
        delay.responded(str(n))
    due = [delay.due_at(str(n), START + 10_000) for n in range(5)]
    assert due == [0, 0, START + 11_000, START + 11_000, START + 11_000]
    clock.advance(2)
    delay.accepting("later")
    delay.responded("later")
    assert delay.remembered == 1


def test_without_a_delay_no_response_times_are_stored() -> None:
    delay = StatusDelay(0.0, ManualClock())
    delay.accepting("a")
    assert delay.due_at("a", START) == 0
    delay.responded("a")
    assert delay.due_at("a", START) == 0
    assert not delay.remembered


async def started(world: World, clock: ManualClock, **more: object) -> Running:
    world.add_phones(NUMBER, OTHER)
    running = await world.start(clock=clock, status_delay=DEFAULT, **more)  # type: ignore[arg-type]
    # Messages of before the start count as responded to at the start.
    clock.advance(DEFAULT)
    await world.connected(running)
    await running.client.check(NUMBER, OTHER)
    return running


def pass_time(running: Running, clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    running.shard.webhook.queue.release_due()


async def test_statuses_are_posted_in_order_one_second_after_the_response(world: World) -> None:
    clock = ManualClock()
    running = await started(world, clock)
    world.network.receipts = ("delivered",)
    message = (await running.client.send(NUMBER)).id
    queue = running.shard.webhook.queue
    await soon(lambda: len(queue) == 2)
    [send] = world.network.sends
    # It was sent to the recipient, whose reply is reported to the business at once.
    phone = world.network.phones[NUMBER]
    phone.read(send.kind, send.body)
    kind, ciphertext = phone.write(b'{"type":"text","text":{"body":"hello"}}')
    world.network.deliver(NUMBER, kind, id="reply", body=ciphertext)
    await world.sink.signals.until(lambda: world.sink.labels() == [("reply", "received")])
    await soon(lambda: len(queue) == 2)
    assert (queue.held, queue.age()) == (2, 0.0)
    pass_time(running, clock, DEFAULT - 0.01)
    assert not queue.ready
    pass_time(running, clock, 0.01)
    assert queue.held == 0
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 3)
    assert world.sink.statuses_of(message) == ["sent", "delivered"]
    # Later statuses do not wait again.
    world.network.deliver(NUMBER, frames.READ, id="read", refs=[message])
    await world.sink.signals.until(lambda: world.sink.statuses_of(message)[-1] == "read")


async def test_the_delay_applies_to_the_first_status_that_is_posted(world: World) -> None:
    await world.configure(webhooks={"message": {"sent": False}}, sent_status=False)
    clock = ManualClock()
    running = await started(world, clock)
    world.network.receipts = ("delivered",)
    message = (await running.client.send(NUMBER)).id
    await soon(lambda: len(running.shard.webhook.queue) == 1)
    assert running.shard.webhook.queue.held == 1
    pass_time(running, clock, DEFAULT)
    await world.sink.signals.until(lambda: world.sink.labels() == [(message, "delivered")])


async def test_a_refused_message_is_reported_one_second_after_the_response(world: World) -> None:
    clock = ManualClock()
    running = await started(world, clock)
    world.network.policy = lambda send: frames.NO_SUCH_NUMBER
    message = (await running.client.send(NUMBER)).id
    await soon(lambda: running.shard.webhook.queue.held == 1)
    pass_time(running, clock, DEFAULT)
    await world.sink.signals.until(lambda: world.sink.labels() == [(message, "failed")])


async def test_a_message_that_fails_at_acceptance_is_reported_one_second_later(world: World) -> None:
    clock = ManualClock()
    running = await started(world, clock, reengagement_window=True)
    message = (await running.client.send(NUMBER)).id
    assert running.shard.webhook.queue.held == 1
    pass_time(running, clock, DEFAULT - 0.01)
    assert not running.shard.webhook.queue.ready
    pass_time(running, clock, 0.01)
    await world.sink.signals.until(lambda: world.sink.labels() == [(message, "failed")])


async def test_held_statuses_stay_held_after_a_kill_until_due(world: World) -> None:
    clock = ManualClock()
    running = await started(world, clock)
    sent = (await running.client.send(NUMBER)).id
    await soon(lambda: running.shard.webhook.queue.held == 1)
    # A job is finished when its status is on disk. The job of this message has no response yet.
    world.network.policy = lambda send: "hold"
    left = (await running.client.send(OTHER)).id
    await running.killed()
    clock.advance(0.75)
    world.network.policy = lambda send: None
    again = await world.start(node="second", clock=clock, status_delay=DEFAULT)
    queue = again.shard.webhook.queue
    await soon(lambda: queue.held == 2)
    pass_time(again, clock, 0.24)
    assert not queue.ready
    assert queue.held == 2
    pass_time(again, clock, 0.01)
    await world.sink.signals.until(lambda: world.sink.labels() == [(sent, "sent")])
    # The time of its response is unknown: it may have been as late as the end of the process.
    pass_time(again, clock, 0.74)
    assert queue.held == 1
    pass_time(again, clock, 0.01)
    await world.sink.signals.until(lambda: world.sink.labels() == [(sent, "sent"), (left, "sent")])


async def test_statuses_of_group_messages_are_delayed(
    world: World, database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    world.settings = world.settings.model_copy(update={"status_delay": 0.3})
    posted: list[float] = []

    def respond(post: Post) -> int:
        if "statuses" in post.body:
            posted.append(time.monotonic())
        return 200

    world.sink.respond = respond
    async with group_scene(world, database_factory, tmp_path) as scene:
        group = await scene.create()
        await scene.joined(group, ANN)
        started = time.monotonic()
        message = await scene.sent(group)
        await scene.until_webhook(lambda: len(scene.statuses(message)) == 3)
        assert [status for status, _, _ in scene.statuses(message)] == ["sent", "delivered", "read"]
        # Due times have a resolution of 1 ms.
        assert posted[0] >= started + 0.3 - 0.001
