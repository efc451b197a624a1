"""History of a running Coreapp: contents after each outcome, crashes, resends, and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest
from prometheus_client import REGISTRY

from coreapp.context import ShardStore
from coreapp.history_retention import HistoryCollector
from coreapp.journal.change import Change
from coreapp.webhook import retry
from harness import polling
from tests import statements
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.signals import soon
from tests.coreapp.sink import Post
from tests.coreapp.webhook.test_delivery import NUMBERS, running_with
from tests.manual_clock import ManualClock
from tidings.aio.clock import SystemClock
from tidings.storage.business import (
    audit_entries,
    callback_history,
    callback_replays,
    callback_views,
    callbacks,
    message_views,
)
from tidings.storage.business.callback_history import EndedAttempt
from tidings.storage.business.callback_views import CallbackEntry, CallbackFilter, CallbackRecord
from tidings.storage.business.message_views import MessageView
from tidings.storage.business.messages import Status
from tidings.storage.database import Connection, Subject
from tidings.wire import codes, core, device

HOUR = 3600

Value = TypeVar("Value")


async def entries(world: World, state: str = "") -> Sequence[CallbackEntry]:
    """Return the callbacks of the business, oldest first."""
    async with world.database.reading() as connection:
        page = await callback_views.list_callbacks(connection, BUSINESS, CallbackFilter(state=state), limit=1000)
    return page.rows[::-1]


async def until(world: World, state: str, count: int) -> Sequence[CallbackEntry]:
    """Wait until `count` callbacks on disk have a state."""

    async def are_there() -> bool:
        return len(await entries(world, state)) >= count

    await polling.until(are_there, pause=0.01)
    return await entries(world, state)


async def record_of(world: World, seq: int) -> CallbackRecord:
    async with world.database.reading() as connection:
        found = await callback_views.read_callback(connection, BUSINESS, seq)
    assert found is not None
    return found


async def message_of(world: World, message_id: str) -> MessageView:
    async with world.database.reading() as connection:
        found = await message_views.read_timeline(connection, BUSINESS, message_id)
    assert found is not None
    return found.message


async def test_a_read_message_has_its_times_and_its_callbacks_with_their_attempts(world: World) -> None:
    running = await running_with(world, 1)
    world.network.receipts = ("delivered", "read")
    message = (await running.client.send(NUMBERS[0])).id
    found = await until(world, "done", 3)
    assert [(row.message_id, row.recipient, row.kind) for row in found] == [(message, NUMBERS[0], "status_change")] * 3
    assert {row.event_id for row in found} == {post.event_id for post in world.sink.posts}
    assert await entries(world, "pending") == []
    shown = await message_of(world, message)
    assert shown.status is Status.READ
    assert shown.sent_at is not None
    assert shown.delivered_at is not None
    assert shown.read_at is not None
    assert shown.stored_at <= shown.sent_at <= shown.delivered_at <= shown.read_at
    for row, post in zip(found, world.sink.posts, strict=True):
        (attempt,) = (await record_of(world, row.seq)).attempts
        assert (attempt.attempt, attempt.status, attempt.error) == (1, 200, "")
        assert attempt.at // 1000 == post.timestamp
        response = await running.client.call(
            lambda n, row=row: core.ReadCallback(n, BUSINESS, row.seq, "ann (console)")
        )
        assert response.body.startswith(b'{"statuses":')
        assert response.responses == [core.AttemptResponse(attempt.at, b"ok")]
    await running.client.call(lambda n: core.ReadCallback(n, BUSINESS, found[0].seq))  # from an earlier release
    async with world.database.reading() as connection:
        audited = await audit_entries.list_after(connection, (0, ""))
    assert {(one.account, one.action, one.subject, one.by) for one in audited} == {
        (BUSINESS, "show_callback", row.event_id, "ann (console)") for row in found
    }
    assert len(audited) == 3


async def test_a_callback_that_is_shown_is_logged_with_its_requester(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    running = await running_with(world, 1)
    await running.client.send(NUMBERS[0])
    (row,) = await until(world, "done", 1)
    with caplog.at_level("INFO"):
        for by in ("ann (console)", ""):
            await running.client.call(lambda n, by=by: core.ReadCallback(n, BUSINESS, row.seq, by))
    logged = [record.__dict__ for record in caplog.records if record.message == "content.shown"]
    assert [(entry["action"], entry["id"], entry["by"]) for entry in logged] == [
        ("show_callback", row.event_id, "ann (console)"),
        ("show_callback", row.event_id, ""),
    ]


async def test_texts_are_sealed_and_opened_only_for_their_number(world: World) -> None:
    running = await running_with(world, 1)
    # Long enough never to occur in random bytes.
    world.sink.text = "taken by the receiver"
    await running.client.send(NUMBERS[0])
    (row,) = await until(world, "done", 1)
    record = await record_of(world, row.seq)
    assert record.ended is not None
    assert b"statuses" not in record.ended.part.sealed
    assert b"taken by the receiver" not in record.ended.part.sealed
    refused = await running.client.call(lambda n: core.ReadCallback(n, BUSINESS, row.seq + 1))
    assert refused.code == codes.NOT_FOUND
    refused = await running.client.call(lambda n: core.ReadCallback(n, "15550009999", row.seq))
    assert isinstance(refused, core.Refused)


async def test_the_time_of_a_later_encryption_is_kept(world: World) -> None:
    world.add_phones(NUMBERS[0])
    running = await world.start()
    await world.connected(running)
    first = (await running.client.send(NUMBERS[0])).id
    await until(world, "done", 1)
    second = (await running.client.send(NUMBERS[0])).id
    await until(world, "done", 2)
    later, at_once = await message_of(world, first), await message_of(world, second)
    assert later.encrypted_at is not None
    assert later.sent_at is not None
    assert later.stored_at <= later.encrypted_at <= later.sent_at
    assert at_once.encrypted_at is None
    assert at_once.sent_at is not None


async def test_a_failed_message_has_the_code_of_its_failure(world: World) -> None:
    world.network.policy = lambda send: device.BLOCKED
    running = await running_with(world, 1)
    refused = (await running.client.send(NUMBERS[0])).id
    content = b'{"type":"text","text":{"body":"hi"}}'
    never_sent = await running.client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, "15550160000", "text", content, checked_late=True)
    )
    await until(world, "done", 2)
    for message, code in ((refused, 1007), (never_sent.id, 1013)):
        shown = await message_of(world, message)
        assert (shown.status, shown.failure, shown.sent_at) == (Status.FAILED, code, None)
        assert shown.failed_at is not None
        assert shown.failed_at >= shown.stored_at


async def test_each_failed_attempt_is_kept_and_the_accepted_one_is_last(world: World) -> None:
    running = await running_with(world, 1)

    def respond(post: Post) -> int:
        if len(world.sink.posts) == 1:
            raise ConnectionResetError
        return 503 if len(world.sink.posts) < 4 else 200

    world.sink.respond = respond
    await running.client.send(NUMBERS[0])
    (row,) = await until(world, "done", 1)
    assert row.attempt == 4
    attempts = (await record_of(world, row.seq)).attempts
    assert [(one.attempt, one.status) for one in attempts] == [(1, None), (2, 503), (3, 503), (4, 200)]
    assert [one.error != "" for one in attempts] == [True, False, False, False]
    text = await running.client.call(lambda n: core.ReadCallback(n, BUSINESS, row.seq))
    assert text.responses == [core.AttemptResponse(one.at, b"ok") for one in attempts if one.status]


async def test_a_failing_callback_shows_its_attempts_before_it_ends(world: World) -> None:
    running = await running_with(world, 1, clock=ManualClock())
    world.sink.respond = lambda post: 500
    await running.client.send(NUMBERS[0])
    (row,) = await until(world, "failing", 1)
    assert row.last_error == "HTTP 500"
    assert row.next_attempt is not None
    (attempt,) = (await record_of(world, row.seq)).attempts
    assert (attempt.attempt, attempt.status) == (1, 500)
    assert row.next_attempt == attempt.at + 10


async def given_up(world: World, running: Running, clock: ManualClock) -> CallbackEntry:
    """Let the webhook refuse the callback of one message for a day."""
    world.sink.respond = lambda post: 500
    await running.client.send(NUMBERS[0])
    queue = running.shard.webhook.queue
    for count in range(1, retry.MIN_ATTEMPTS):
        await world.sink.signals.until(lambda count=count: len(world.sink.posts) == count)  # type: ignore[misc]
        await soon(lambda: queue.scheduled > 0)
        clock.advance(24 * HOUR)
        queue.release_due()
    (row,) = await until(world, "given up", 1)
    return row


async def test_a_given_up_callback_shows_its_attempts_and_is_done_after_a_resend(world: World) -> None:
    clock = ManualClock()
    running = await running_with(world, 1, clock=clock)
    row = await given_up(world, running, clock)
    assert (row.attempt, row.next_attempt) == (10, None)
    assert [one.attempt for one in (await record_of(world, row.seq)).attempts] == list(range(1, 11))
    world.sink.respond = lambda post: 200
    response = await running.client.call(lambda n: core.ResendCallbacks(n, BUSINESS, [row.seq], "ann"))
    assert response.count == 1
    (done,) = await until(world, "done", 1)
    assert (done.seq, done.attempt) == (row.seq, 1)
    attempts = (await record_of(world, row.seq)).attempts
    assert [(one.attempt, one.status) for one in attempts][-1] == (1, 200)
    assert len({post.event_id for post in world.sink.posts}) == 1


async def test_accepted_callbacks_are_posted_again_under_their_event_ids_and_audited(world: World) -> None:
    running = await running_with(world, 3)
    for number in NUMBERS[:3]:
        await running.client.send(number)
    first, second, third = await until(world, "done", 3)
    chosen = [first.seq, third.seq]
    response = await running.client.call(lambda n: core.ResendCallbacks(n, BUSINESS, [*chosen, first.seq, 77], "ann"))
    assert response.count == 2
    found = await until(world, "done", 5)
    assert [row.event_id for row in found[3:]] == [first.event_id, third.event_id]
    assert [row.recipient for row in found[3:]] == [first.recipient, third.recipient]
    posts = [post for post in world.sink.posts if post.event_id == first.event_id]
    assert len(posts) == 2
    assert posts[0].body == posts[1].body
    async with world.database.reading() as connection:
        audit = await callback_replays.list_after(connection, (0, 0))
    assert [(entry.event_id, entry.by) for entry in audit] == [(first.event_id, "ann"), (third.event_id, "ann")]
    assert second.event_id not in [entry.event_id for entry in audit]


async def test_a_callback_accepted_in_the_meantime_is_not_posted_again_unless_requested(world: World) -> None:
    running = await running_with(world, 1)
    await running.client.send(NUMBERS[0])
    (row,) = await until(world, "done", 1)
    response = await running.client.call(lambda n: core.ResendCallbacks(n, BUSINESS, [row.seq], "ann", accepted=False))
    assert response.count == 0
    response = await running.client.call(lambda n: core.ResendCallbacks(n, BUSINESS, [row.seq], "ann"))
    assert response.count == 1
    await until(world, "done", 2)
    assert len(world.sink.posts) == 2


async def test_callbacks_of_another_number_are_not_resent(world: World) -> None:
    running = await running_with(world, 1)
    await running.client.send(NUMBERS[0])
    (row,) = await until(world, "done", 1)
    response = await running.client.call(lambda n: core.ResendCallbacks(n, "15550009999", [row.seq], "ann"))
    assert response.code == codes.ACCESS_DENIED
    assert len(world.sink.posts) == 1


async def test_a_killed_coreapp_leaves_each_callback_once(world: World) -> None:
    running = await running_with(world, 10)
    world.network.receipts = ("delivered", "read")
    hold = asyncio.Event()

    async def respond(post: Post) -> int:
        if len(world.sink.posts) > 12:
            await hold.wait()
        return 200

    world.sink.respond = respond
    for number in NUMBERS[:10]:
        await running.client.send(number)
    await world.sink.signals.until(lambda: len(world.sink.posts) > 12)
    await running.killed()
    hold.set()
    again = await world.start()
    await world.connected(again)
    found = await until(world, "done", 30)
    await again.stopped()
    assert len(found) == 30
    assert len({row.event_id for row in found}) == 30
    async with world.database.reading() as connection:
        assert await callbacks.count_pending(connection, 0) == 0


async def test_the_history_of_a_batch_is_one_statement(world: World) -> None:
    running = await running_with(world, 30)
    await asyncio.gather(*(running.client.send(number) for number in NUMBERS))
    await until(world, "done", 30)
    seqs = [row.seq for row in await entries(world)]
    bodies, shard = running.shard.context.bodies, running.shard
    again = [callbacks.Callback(seq + 32, 0, BUSINESS, "m", "status_change", b"{}", 1) for seq in seqs]
    async with world.database.transaction() as connection:
        await callbacks.enqueue(connection, again, bodies.seal(again))
    with statements.sent() as sent:
        await asyncio.gather(*(shard.context.journal.put(_finished(one)) for one in again))
    texts = [text for text, _ in sent]
    added = sum(text.count("INSERT INTO callback_history") for text in texts)
    assert added == sum(text.count("DELETE FROM callbacks") for text in texts)
    assert 1 <= added <= 2
    assert not [text for text in texts if "callback_attempts" in text]


def _finished(one: callbacks.Callback) -> Change:
    ended = EndedAttempt(one, 1, 5, 7, 200, b"no row of its own")
    return Change(BUSINESS, finished_callbacks=(one.seq,), ended_callbacks=(ended,))


async def test_without_history_nothing_is_kept_and_no_statement_is_added(world: World) -> None:
    running = await running_with(world, 1, history_hours=0)
    world.network.receipts = ("delivered", "read")
    with statements.sent() as sent:
        message = (await running.client.send(NUMBERS[0])).id
        await world.sink.signals.until(lambda: len(world.sink.taken()) == 3)

        async def is_empty() -> bool:
            async with world.database.reading() as connection:
                return await callbacks.count_pending(connection, 0) == 0

        await polling.until(is_empty, pause=0.01)
    texts = [text for text, _ in sent]
    assert not [text for text in texts if "callback_history" in text or "callback_attempts" in text]
    assert not [text for text in texts if text.startswith("UPDATE messages") and "_at" in text]
    assert await entries(world) == []
    assert (await message_of(world, message)).sent_at is None


def collector(running: Running, hours: int, ahead: float, limit: int = 100) -> HistoryCollector:
    """Return the collector of a running Coreapp, as if it were `ahead` seconds later."""
    context = running.shard.context
    clock = ManualClock(SystemClock().now() + ahead)
    store = ShardStore(database=context.database, lease=context.lease, clock=clock, account=BUSINESS)
    return HistoryCollector(store, hours, limit=limit, page=2, counted=3)


async def test_the_history_expires_after_its_hours(world: World) -> None:
    running = await running_with(world, 2)
    world.sink.respond = lambda post: 500 if len(world.sink.posts) == 1 else 200
    await running.client.send(NUMBERS[0])
    (old,) = await until(world, "done", 1)
    assert await collector(running, 2, 2 * HOUR - 60)() == 0
    assert len((await record_of(world, old.seq)).attempts) == 2
    assert await collector(running, 2, 2 * HOUR + 60)() == 2, "the callback, and its failed attempt"
    assert await entries(world) == []


async def test_attempts_at_a_callback_in_the_queue_do_not_expire(world: World) -> None:
    running = await running_with(world, 1, clock=ManualClock())
    world.sink.respond = lambda post: 500
    await running.client.send(NUMBERS[0])
    (row,) = await until(world, "failing", 1)
    assert await collector(running, 2, 3 * HOUR)() == 0
    assert len((await record_of(world, row.seq)).attempts) == 1


async def test_small_batches_are_merged_and_nothing_is_lost(world: World) -> None:
    running = await running_with(world, 10)
    for number in NUMBERS[:10]:
        await running.client.send(number)
        await until(world, "done", NUMBERS.index(number) + 1)
    before = await until(world, "done", 10)
    collect = collector(running, 2, 600)
    for _ in range(2):
        assert await collect() == 0
        assert await entries(world) == before
    assert len(await sizes(world)) < 10
    response = await running.client.call(lambda n: core.ReadCallback(n, BUSINESS, before[3].seq))
    assert before[3].message_id.encode() in response.body


async def sizes(world: World) -> Sequence[int]:
    """Return the numbers of callbacks of the segments, oldest first."""
    async with world.database.reading() as connection:
        found = await callback_history.count_page(connection, BUSINESS, after=0, limit=100)
    return [size for _, size in found.sizes]


async def keep(world: World, running: Running, count: int, *, ago: int) -> None:
    """Add callbacks that were made `ago` seconds ago and have just ended, in a segment each."""
    made, now = int((SystemClock().now() - ago) * 1e6), int(SystemClock().now() * 1000)
    for place in range(count):
        one = callbacks.Callback((made + place) << 5, 0, BUSINESS, f"m{place}", "status_change", b"{}", 1)
        ended = EndedAttempt(one, 1, now, 1, 200, b"")
        async with world.database.transaction() as connection:
            await callback_history.add(connection, [ended], running.shard.context.bodies.seal_texts)


async def test_callbacks_that_end_late_are_merged_and_counted(world: World) -> None:
    running = await running_with(world, 0)
    collect = collector(running, 24, 600)
    await keep(world, running, 6, ago=10)
    await collect()
    assert await sizes(world) == [3, 3]
    await keep(world, running, 6, ago=HOUR)
    for _ in range(6):
        await collect()
    assert await sizes(world) == [3, 3, 6]
    assert REGISTRY.get_sample_value("tidings_callback_history", {"number": BUSINESS}) == 12


async def test_callbacks_numbered_by_a_clock_that_was_years_ahead_expire(world: World) -> None:
    running = await running_with(world, 0)
    await keep(world, running, 6, ago=-10 * 365 * 24 * HOUR)
    await collector(running, 2, 2 * HOUR - 60)()
    assert sum(await sizes(world)) == 6
    assert await collector(running, 2, 2 * HOUR + 60)() == 6
    assert await sizes(world) == []


async def test_the_history_numbered_by_a_clock_that_was_years_ahead_has_the_same_limit(world: World) -> None:
    running = await running_with(world, 0)
    await keep(world, running, 30, ago=-10 * 365 * 24 * HOUR)
    await collector(running, 24, 600, limit=20)()
    assert 0 < sum(await sizes(world)) <= 20


class Noting(ShardStore):
    """Store that notes the queries of its fenced transactions."""

    async def persist(
        self,
        work: Callable[[Connection], Awaitable[Value]],
        *,
        retry_seconds: float = 60.0,
        about: Subject = "messages",
    ) -> Value:
        with statements.recorded("FROM callback_history") as found:
            result = await super().persist(work, retry_seconds=retry_seconds, about=about)
        fenced.extend(found)
        return result


fenced: list[str] = []


async def test_segments_are_read_before_the_transaction_that_holds_the_lease(world: World) -> None:
    running = await running_with(world, 0)
    await keep(world, running, 6, ago=10)
    collect = collector(running, 24, 600)
    store = collect.store
    collect.store = Noting(database=store.database, lease=store.lease, clock=store.clock, account=store.account)
    fenced.clear()
    await collect()
    assert len(await sizes(world)) < 6
    assert [text for text in fenced if text.startswith("DELETE")]
    assert not [text for text in fenced if "texts" in text]


async def test_many_ended_callbacks_are_posted_again_with_few_queries(world: World) -> None:
    running = await running_with(world, 30)
    world.network.receipts = ("delivered", "read")
    await asyncio.gather(*(running.client.send(number) for number in NUMBERS[:30]))
    found = await until(world, "done", 90)
    with statements.recorded("FROM callback_history") as queries:
        seqs = [row.seq for row in found]
        response = await running.client.call(lambda n: core.ResendCallbacks(n, BUSINESS, seqs, "ann"))
    assert response.count == 90
    assert len(queries) == 4, "two pages, each of which is found, and later read with its texts"
    again = (await until(world, "done", 180))[90:]
    assert sorted(row.event_id for row in again) == sorted(row.event_id for row in found)
    bodies = {post.event_id: post.body for post in world.sink.posts[:90]}
    assert all(bodies[post.event_id] == post.body for post in world.sink.posts[90:])


async def test_too_many_callbacks_are_deleted_early_oldest_first(world: World) -> None:
    running = await running_with(world, 0)
    bodies, now = running.shard.context.bodies, int(SystemClock().now() * 1e6)
    found = [
        callbacks.Callback((now - 1_000_000 + place) << 5, 0, BUSINESS, "m", "status_change", b"{}", 1)
        for place in range(60)
    ]
    ended = [EndedAttempt(one, 1, now // 1000, 1, 200, b"") for one in found]
    async with world.database.transaction() as connection:
        for start in (0, 20, 40):
            await callback_history.add(connection, ended[start : start + 20], bodies.seal_texts)
    collect = collector(running, 24, 600, limit=45)
    assert await collect() == 20
    assert [row.seq for row in await entries(world)] == [one.seq for one in found[20:]]
    assert await collect() == 0


async def test_a_reset_in_test_mode_deletes_the_history(world: World) -> None:
    running = await running_with(world, 1, testing=True)
    await running.client.send(NUMBERS[0])
    await until(world, "done", 1)
    assert isinstance(await running.client.call(core.EmptyQueues), core.Purged)
    assert await entries(world) == []
