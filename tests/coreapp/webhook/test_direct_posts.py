"""Direct posts: statuses that the webhook accepts before their change is committed, and those that get rows after
all."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest

from coreapp.journal.change import Change
from coreapp.webhook import direct_posts
from coreapp.webhook.direct_posts import DirectBatch
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.phones import Phone
from tests.coreapp.scripted_network import HOLD
from tests.coreapp.signals import soon
from tests.coreapp.sink import Post
from tests.coreapp.webhook.cloud.test_cloud_webhooks import CloudPost, CloudSink, cloud_sink, subscribe
from tests.coreapp.webhook.test_delivery import NUMBERS, running_with
from tests.coreapp.webhook.test_history import entries, until
from tests.manual_clock import ManualClock
from tidings.aio.batcher import BatcherFull
from tidings.storage.business import callbacks, messages
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.messages import Status
from tidings.wire import core
from tidings.wire import device as frames
from tidings.wire.cloud import wamid

__all__ = ["cloud_sink"]

NUMBER = NUMBERS[0]
TEXT = b'{"type":"text","text":{"body":"hi"}}'
NEVER = 3600.0  # seconds, longer than any test


class Rows:
    """Events of the callbacks that were inserted, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: list[str] = []
        enqueue = callbacks.enqueue

        async def note(connection: object, new: Sequence[Callback], sealed: Sequence[bytes]) -> None:
            self.written += [callback.event for callback in new]
            await enqueue(connection, new, sealed)  # type: ignore[arg-type]

        monkeypatch.setattr(callbacks, "enqueue", note)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Rows:
    return Rows(monkeypatch)


class Held:
    """Webhook that responds to posts with this status only when the test says so, and to the others at once."""

    def __init__(self, world: World, *statuses: str) -> None:
        self.statuses = statuses
        self.opened = asyncio.Event()
        world.sink.respond = self.respond

    async def _later(self) -> int:
        await self.opened.wait()
        return 200

    def respond(self, post: Post) -> object:
        return self._later() if not self.opened.is_set() and post.label[1] in self.statuses else 200


def event(message_id: str, status: Status) -> str:
    return callbacks.status_event(message_id, NUMBER, int(status))


async def with_session(world: World) -> tuple[Running, Phone]:
    """Start a Coreapp, and return it with a phone that has read a message of it."""
    running, phone, _ = await world.start_with_session(NUMBER)
    await until(world, "done", 1)
    world.sink.posts.clear()
    return running, phone


async def posted(world: World, count: int) -> None:
    await world.sink.signals.until(lambda: len(world.sink.posts) >= count)


async def status_of(world: World, running: Running, message_id: str) -> Status:
    async with world.database.reading() as connection:
        (found,) = await messages.list_progress(connection, running.shard.context.account, [message_id])
    return Status(found.status)


async def test_statuses_that_are_accepted_at_once_have_no_rows(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    running = await running_with(world, 1)
    world.network.receipts = ("delivered", "read")
    message = (await running.client.send(NUMBER)).id
    found = await until(world, "done", 3)
    assert world.sink.statuses_of(message) == ["sent", "delivered", "read"]
    assert [row.event_id for row in found] == [post.event_id for post in world.sink.posts]
    assert rows.written == []
    assert await status_of(world, running, message) is Status.READ
    await world.until_jobs(0)
    assert len(running.shard.webhook.queue) == 0


async def test_a_status_that_is_not_accepted_in_time_gets_a_row(world: World, rows: Rows) -> None:
    running = await running_with(world, 1)
    webhook = Held(world, "sent")
    message = (await running.client.send(NUMBER)).id
    await until(world, "pending", 1)
    await world.until_jobs(0)
    assert rows.written == [event(message, Status.SENT)]
    assert not world.sink.taken()
    webhook.opened.set()
    await until(world, "done", 1)
    assert await entries(world, "pending") == []
    assert world.sink.statuses_of(message) == ["sent"]


async def test_after_a_post_that_was_not_accepted_in_time_rows_are_written_at_once_for_a_second(
    world: World, rows: Rows
) -> None:
    running = await running_with(world, 1)
    webhook = Held(world, "sent")
    first = (await running.client.send(NUMBER)).id
    await until(world, "pending", 1)
    webhook.opened.set()
    await until(world, "done", 1)
    second = (await running.client.send(NUMBER)).id
    await until(world, "done", 2)
    assert rows.written == [event(first, Status.SENT), event(second, Status.SENT)]


async def unaccepted_beside_an_accepted_one(world: World, running: Running) -> tuple[DirectBatch, str, Held]:
    """Post a status that the webhook does not accept, then one that it accepts.

    Returns the batch of the first one, the id of its message, and the webhook.
    """
    first = (await running.client.send(NUMBER)).id
    await until(world, "done", 1)
    webhook = Held(world, "sent")
    second = (await running.client.send(NUMBER)).id
    await posted(world, 2)
    (batch,) = running.shard.webhook.direct._batches
    world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[first])
    await until(world, "done", 2)
    return batch, second, webhook


def expire(running: Running, batch: DirectBatch) -> None:
    """End the present time of a batch. It is over if the batch does not get it again."""
    loop = asyncio.get_running_loop()
    batch.timer.cancel()
    batch.timer = loop.call_at(loop.time(), lambda: None)
    running.shard.webhook.direct._expire(batch)


async def test_a_status_waits_longer_while_the_webhook_accepts_others(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    monkeypatch.setattr(direct_posts, "LONGEST_SECONDS", NEVER)
    running = await running_with(world, 1)
    batch, message, webhook = await unaccepted_beside_an_accepted_one(world, running)
    expire(running, batch)
    assert batch.unwritten
    # Since then the webhook has accepted none.
    expire(running, batch)
    assert not batch.unwritten
    await until(world, "pending", 1)
    assert rows.written == [event(message, Status.SENT)]
    webhook.opened.set()
    await until(world, "done", 3)


async def test_a_status_does_not_wait_for_ever_while_the_webhook_accepts_others(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    monkeypatch.setattr(direct_posts, "LONGEST_SECONDS", 0.0)
    running = await running_with(world, 1)
    batch, message, webhook = await unaccepted_beside_an_accepted_one(world, running)
    expire(running, batch)
    await until(world, "pending", 1)
    assert rows.written == [event(message, Status.SENT)]
    webhook.opened.set()
    await until(world, "done", 3)


async def test_a_refused_status_gets_a_row_and_is_retried(world: World, rows: Rows) -> None:
    running = await running_with(world, 1)
    world.sink.respond = lambda post: 200 if len(world.sink.posts) > 3 else 500
    message = (await running.client.send(NUMBER)).id
    (found,) = await until(world, "done", 1)
    assert found.attempt == 4
    assert rows.written == [event(message, Status.SENT)]
    assert world.sink.statuses_of(message) == ["sent"]
    assert len({post.event_id for post in world.sink.posts}) == 1


@pytest.mark.parametrize("step", ["sent", "delivered"])
async def test_a_status_that_was_accepted_but_not_committed_is_posted_again_with_its_event_id(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    running = await running_with(world, 1)
    committed = asyncio.Event()
    committer = running.node.process.committer
    commit = committer._commit

    async def hang(batches: object) -> None:
        """Commit nothing from the first status on."""
        if step in [label[1] for label in world.sink.labels()]:
            await committed.wait()
        await commit(batches)  # type: ignore[arg-type]

    monkeypatch.setattr(committer, "_commit", hang)
    message = (await running.client.send(NUMBER)).id
    if step == "delivered":
        await world.until_jobs(0)
        world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[message])
    await world.sink.signals.until(lambda: step in [label[1] for label in world.sink.labels()])
    (before,) = [post.event_id for post in world.sink.posts if post.label == (message, step)]
    killed = asyncio.create_task(running.killed())
    committed.set()
    await killed
    assert "d1" not in world.network.acknowledged

    again = await world.start(node="second")
    await world.connected(again)
    if step == "delivered":
        world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[message])
    await world.sink.signals.until(lambda: [label[1] for label in world.sink.labels()].count(step) == 2)
    assert [post.event_id for post in world.sink.posts if post.label == (message, step)] == [before, before]


async def test_a_message_does_not_wait_for_the_posts_of_earlier_receipts(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    running, phone = await with_session(world)
    message = (await running.client.send(NUMBER)).id
    await world.until_jobs(0)
    webhook = Held(world, "delivered")
    world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[message])
    await world.sink.signals.until(lambda: (message, "delivered") in [post.label for post in world.sink.posts])
    assert rows.written == []
    kind, body = phone.write(TEXT)
    world.network.deliver(NUMBER, kind, id="in-1", body=body)
    await world.network.signals.until(lambda: world.network.acknowledged == ["d1", "in-1"])
    assert rows.written[0] == event(message, Status.DELIVERED)
    webhook.opened.set()
    await until(world, "done", 4)
    assert world.sink.statuses_of(message) == ["sent", "delivered"]


async def test_an_unwritten_status_is_committed_before_a_later_one(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    running, phone = await with_session(world)
    Held(world, "sent")
    message = (await running.client.send(NUMBER)).id
    await world.sink.signals.until(lambda: (message, "sent") in [post.label for post in world.sink.posts])
    assert rows.written == []
    # The receipt is in one batch with a message, whose commit waits for no post.
    kind, body = phone.write(TEXT)
    world.network.deliver(NUMBER, kind, id="in-1", body=body)
    world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[message])
    await world.network.signals.until(lambda: set(world.network.acknowledged) == {"d1", "in-1"})
    statuses = [event(message, Status.SENT), event(message, Status.DELIVERED)]
    assert [written for written in rows.written if written in statuses] == statuses
    await running.killed()

    world.sink.respond = lambda post: 200
    again = await world.start(node="second")
    await world.connected(again)
    await until(world, "done", 4)
    assert world.sink.statuses_of(message) == ["sent", "delivered"]


async def test_an_unwritten_status_is_committed_before_a_later_one_that_only_the_other_webhook_gets(
    world: World, cloud_sink: CloudSink, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    """The Cloud API reports no delivered reaction."""
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    await subscribe(world, cloud_sink.url)
    running = await running_with(world, 1)

    async def never(post: CloudPost) -> int:
        await asyncio.sleep(NEVER)
        return 200

    cloud_sink.respond = never
    content = b'{"type":"reaction","reaction":{"message_id":"in-1","emoji":"x"}}'
    message = (await running.client.call(lambda n: core.AcceptMessage(n, BUSINESS, NUMBER, "reaction", content))).id
    await cloud_sink.signals.until(lambda: len(cloud_sink.posts) == 1)
    await posted(world, 1)
    assert rows.written == []
    world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[message])
    await world.network.signals.until(lambda: world.network.acknowledged == ["d1"])
    await running.killed()

    cloud_sink.respond = lambda post: 200
    await world.connected(await world.start(node="second"))
    await cloud_sink.taken((wamid.encode(message, NUMBER), "sent"))


async def test_an_unwritten_status_is_committed_before_a_later_one_that_no_webhook_gets(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    await world.configure(webhooks={"message": {"delivered": False}})
    running = await running_with(world, 2)
    other = (await running.client.send(NUMBERS[1])).id
    await until(world, "done", 1)
    Held(world, "sent")
    message = (await running.client.send(NUMBER)).id
    await world.sink.signals.until(lambda: (message, "sent") in [post.label for post in world.sink.posts])
    written = len(rows.written)
    # One batch. The callback that it has is accepted at once.
    world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[message])
    world.network.deliver(NUMBERS[1], frames.READ, id="r1", refs=[other])
    await world.network.signals.until(lambda: set(world.network.acknowledged) == {"d1", "r1"})
    assert rows.written[written:] == [event(message, Status.SENT)]
    await running.killed()

    world.sink.respond = lambda post: 200
    await world.connected(await world.start(node="second"))
    await world.sink.signals.until(lambda: world.sink.statuses_of(message) == ["sent"])


async def test_a_batch_with_two_statuses_of_a_message_ends_before_a_third_when_the_first_is_accepted(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    running = await running_with(world, 1)
    Held(world, "delivered")
    world.network.policy = lambda send: HOLD
    message = (await running.client.send(NUMBER)).id
    await world.network.signals.until(lambda: world.network.ids_sent() == [message])
    world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[message])
    await posted(world, 2)
    assert rows.written == []
    direct = running.shard.webhook.direct
    direct.end_before([message])
    assert not direct._batches
    await world.network.signals.until(lambda: world.network.acknowledged == ["d1"])
    assert rows.written == [event(message, Status.DELIVERED)]


async def test_a_status_whose_earlier_one_is_being_committed_is_posted_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await running_with(world, 1)
    direct, committer = running.shard.webhook.direct, running.node.process.committer
    message = (await running.client.send(NUMBER)).id
    await until(world, "done", 1)
    direct._paused_until = float("inf")
    hanging, released = asyncio.Event(), asyncio.Event()
    commit = committer._commit

    async def hang(batches: object) -> None:
        hanging.set()
        await released.wait()
        await commit(batches)  # type: ignore[arg-type]

    monkeypatch.setattr(committer, "_commit", hang)
    world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[message])
    await asyncio.wait_for(hanging.wait(), 60)
    direct._paused_until = 0.0
    (made,) = running.shard.receiving.statuses.reports.report([(message, Status.READ, None, None)]).callbacks
    assert direct.post([made], lambda left, accepted: None, about=[message]) is None
    released.set()
    await until(world, "done", 2)
    assert world.sink.statuses_of(message) == ["sent", "delivered"]


async def test_a_batch_that_expired_while_the_process_was_suspended_has_the_time_again(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    running = await running_with(world, 1)
    loop = asyncio.get_running_loop()
    webhook = Held(world, "sent")
    message = (await running.client.send(NUMBER)).id
    await posted(world, 1)
    (batch,) = running.shard.webhook.direct._batches
    batch.timer.cancel()
    batch.timer = loop.call_at(loop.time() - 2 * NEVER, lambda: None)
    running.shard.webhook.direct._expire(batch)
    assert batch in running.shard.webhook.direct._batches
    webhook.opened.set()
    await until(world, "done", 1)
    assert world.sink.statuses_of(message) == ["sent"]
    assert rows.written == []


async def test_statuses_for_which_memory_has_no_room_get_rows(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    running = await running_with(world, 1, callback_queue_limit=2, webhook_timeout=NEVER)
    sent = []
    for count in (1, 2, 3):
        sent.append((await running.client.send(NUMBER)).id)
        await until(world, "done", count)
    assert rows.written == []
    webhook = Held(world, "delivered")
    world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=sent)
    await world.network.signals.until(lambda: world.network.acknowledged == ["d1"])
    assert rows.written == [event(message, Status.DELIVERED) for message in sent]
    webhook.opened.set()
    await until(world, "done", 6)


async def test_a_post_whose_outcome_the_full_journal_does_not_take_is_repeated_as_a_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    await world.configure(webhooks={"max_statuses_per_post": 2, "max_concurrent_requests": 1})
    running = await running_with(world, 3)
    direct, journal = running.shard.webhook.direct, running.shard.context.journal
    webhook = Held(world, "sent")
    await running.client.send(NUMBERS[0])
    await posted(world, 1)
    # These share the next post. Only the first of them has a row.
    direct._paused_until = math.inf
    await running.client.send(NUMBERS[1])
    await until(world, "pending", 1)
    direct._paused_until = 0.0
    await running.client.send(NUMBERS[2])
    await soon(lambda: len(direct._batches) == 2)
    put = journal.put
    refused: list[Change] = []

    def refuse_once(change: Change, *, urgent: bool = False) -> asyncio.Future[None]:
        if change.finished_callbacks and not refused:
            refused.append(change)
            raise BatcherFull("journal")
        return put(change, urgent=urgent)

    monkeypatch.setattr(journal, "put", refuse_once)
    webhook.opened.set()
    found = await until(world, "done", 3)
    assert await entries(world, "pending") == []
    assert [len(post.labels) for post in world.sink.posts] == [1, 2, 2]
    assert [row.event_id for row in found] == [label for post in world.sink.posts[::2] for label in post.event_ids]


async def test_a_closed_shard_leaves_rows_for_what_was_not_accepted(
    world: World, monkeypatch: pytest.MonkeyPatch, rows: Rows
) -> None:
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    running = await running_with(world, 1)
    Held(world, "sent")
    message = (await running.client.send(NUMBER)).id
    await posted(world, 1)
    assert rows.written == []
    await running.stopped()
    assert rows.written == [event(message, Status.SENT)]
    (left,) = await entries(world, "pending")
    assert left.message_id == message
    await world.until_jobs(0)


async def test_held_statuses_get_rows(world: World, monkeypatch: pytest.MonkeyPatch, rows: Rows) -> None:
    """The client may not have received the id of the message yet."""
    monkeypatch.setattr(direct_posts, "SECONDS", NEVER)
    clock = ManualClock(1_700_000_000.0)
    running = await running_with(world, 1, clock=clock, status_delay=1.0)
    message = (await running.client.send(NUMBER)).id
    await until(world, "pending", 1)
    assert rows.written == [event(message, Status.SENT)]
    clock.advance(2.0)
    running.shard.webhook.queue.release_due()
    await until(world, "done", 1)
    world.network.deliver(NUMBER, frames.DELIVERED, id="d1", refs=[message])
    await until(world, "done", 2)
    assert rows.written == [event(message, Status.SENT)]
