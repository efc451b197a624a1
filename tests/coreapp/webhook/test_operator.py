"""Operator commands on the callback queue of a running Coreapp: post again now, and delete unposted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa

from coreapp.webhook import retry
from harness import polling
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.signals import soon
from tests.coreapp.webhook.test_delivery import NUMBERS, running_with
from tests.manual_clock import ManualClock
from tidings.storage import outages
from tidings.storage.business import callback_purges, callback_replays, callbacks, queue_views
from tidings.storage.business.queue_views import DEAD, FAILING, PENDING, CallbackView, RowFilter
from tidings.storage.database import Connection, Database
from tidings.wire import codes, core


async def waiting(world: World, *statuses: str) -> list[CallbackView]:
    async with world.database.reading() as connection:
        return list(await queue_views.list_callbacks(connection, RowFilter(statuses)))


async def until(world: World, status: str, count: int) -> list[CallbackView]:
    """Wait until `count` callbacks are on disk."""

    async def are_there() -> bool:
        return len(await waiting(world, status)) == count

    await polling.until(are_there, pause=0.01)
    return await waiting(world, status)


async def test_replayed_callbacks_are_posted_at_once_and_audited(world: World) -> None:
    running = await running_with(world, 1, clock=ManualClock())
    world.sink.respond = lambda post: 500
    message = (await running.client.send(NUMBERS[0])).id
    await world.sink.signals.until(lambda: len(world.sink.posts) == 1)
    await soon(lambda: running.shard.webhook.queue.scheduled == 1)
    (failing,) = await until(world, FAILING, 1)
    assert (failing.subject, failing.recipient, failing.last_error) == (message, NUMBERS[0], "HTTP 500")
    world.sink.respond = lambda post: 200
    request = core.ReplayCallbacks
    assert (await running.client.call(lambda n: request(n, [failing.seq, 77], "ann@desk"))).count == 1
    await world.sink.signals.until(lambda: world.sink.labels() == [(message, "sent")])
    assert {post.event_id for post in world.sink.posts} == {failing.event_id}
    async with world.database.reading() as connection:
        (audited,) = await callback_replays.list_after(connection, (0, 0))
    assert (audited.seq, audited.by) == (failing.seq, "ann@desk")


async def test_200_callbacks_are_replayed_per_second_after_2000(world: World) -> None:
    clock = ManualClock()
    running = await running_with(world, 0, clock=clock, callback_queue_limit=10_000)
    bodies = running.shard.context.bodies
    rows = [callbacks.Callback(n, 0, BUSINESS, f"gBEG{n}", "status_change", b"{}", 1) for n in range(1, 3_501)]
    async with world.database.transaction() as connection:
        await callbacks.enqueue(connection, rows, bodies.seal(rows))
        await callbacks.mark_dead(connection, rows, bodies.seal(rows))

    async def replay() -> object:
        response = await running.client.call(lambda n: core.ReplayCallbacks(n, [], "ann@desk"))
        return response.count if isinstance(response, core.Replayed) else (response.code, response.retry_after)

    assert [await replay() for _ in range(3)] == [1_000, 1_000, (1015, 5)]
    clock.advance(4.9)
    assert await replay() == (1015, 1)
    clock.advance(0.2)
    assert await replay() == 1_000
    assert await replay() == (1015, 5)
    clock.advance(1_000)
    assert [await replay() for _ in range(2)] == [500, 0]


async def test_a_purge_deletes_queued_and_dead_callbacks_but_none_being_posted(world: World) -> None:
    clock = ManualClock()
    running = await running_with(world, 3, clock=clock)
    shard = running.shard
    world.sink.respond = lambda post: 500
    given_up = (await running.client.send(NUMBERS[0])).id
    for count in range(1, retry.MIN_ATTEMPTS + 1):
        await world.sink.signals.until(lambda count=count: len(world.sink.posts) == count)  # type: ignore[misc]
        if count < retry.MIN_ATTEMPTS:
            await soon(lambda: shard.webhook.queue.scheduled == 1)
            clock.advance(24 * 3600)
            shard.webhook.queue.release_due()
    await until(world, DEAD, 1)
    failed = (await running.client.send(NUMBERS[1])).id
    await soon(lambda: shard.webhook.queue.scheduled == 1)
    await until(world, FAILING, 1)
    responded = asyncio.Event()

    async def hang(post: object) -> int:
        await responded.wait()
        return 200

    world.sink.respond = hang
    posted = (await running.client.send(NUMBERS[2])).id
    await world.sink.signals.until(lambda: world.sink.in_flight == 1)
    await until(world, PENDING, 1)
    rows = await waiting(world)
    assert {row.subject: row.status for row in rows} == {given_up: DEAD, failed: FAILING, posted: PENDING}
    seqs = [row.seq for row in rows]
    assert (await running.client.call(lambda n: core.PurgeCallbacks(n, seqs, "ann@desk", "all"))).count == 2
    assert [row.subject for row in await waiting(world)] == [posted]
    assert len(shard.webhook.queue) == 1
    responded.set()
    await soon(lambda: len(shard.webhook.queue) == 0)
    clock.advance(24 * 3600)
    shard.webhook.queue.release_due()
    assert world.sink.labels() == [(posted, "sent")]
    async with world.database.reading() as connection:
        (audited,) = await callback_purges.list_after(connection, (0, 0))
    assert (audited.by, audited.choice, audited.deleted, audited.shard) == ("ann@desk", "all", 2, 0)


async def test_a_purge_of_dead_letters_keeps_those_replayed_since(world: World) -> None:
    clock = ManualClock()
    running = await running_with(world, 1, clock=clock)
    queue = running.shard.webhook.queue
    world.sink.respond = lambda post: 500
    message = (await running.client.send(NUMBERS[0])).id
    for count in range(1, retry.MIN_ATTEMPTS + 1):
        await world.sink.signals.until(lambda count=count: len(world.sink.posts) == count)  # type: ignore[misc]
        if count < retry.MIN_ATTEMPTS:
            await soon(lambda: queue.scheduled == 1)
            clock.advance(24 * 3600)
            queue.release_due()
    (dead,) = await until(world, DEAD, 1)
    assert (await running.client.call(lambda n: core.ReplayCallbacks(n, [dead.seq], "ann@desk"))).count == 1
    await soon(lambda: queue.scheduled == 1)
    await until(world, FAILING, 1)
    purge = core.PurgeCallbacks
    response = await running.client.call(lambda n: purge(n, [dead.seq], "ben@desk", "dead", statuses=[DEAD]))
    assert (response.count, response.changed) == (0, 1)
    assert (len(queue), len(await waiting(world, FAILING))) == (1, 1)
    response = await running.client.call(
        lambda n: purge(n, [dead.seq], "ben@desk", "failing", statuses=[DEAD, FAILING])
    )
    assert (response.count, response.changed) == (1, 0)
    assert (len(queue), await waiting(world)) == (0, [])
    assert {post.event_id for post in world.sink.posts} == {dead.event_id}
    assert all(message in str(post.body) for post in world.sink.posts)


async def test_callbacks_of_another_shard_are_neither_replayed_nor_purged(world: World) -> None:
    running = await running_with(world, 0)
    for request in (core.ReplayCallbacks(5, [1], "ann@desk", 7), core.PurgeCallbacks(5, [1], "ann@desk", "all", 7)):
        refused = await running.client.call(lambda n, request=request: _numbered(request, n))  # type: ignore[misc]
        assert isinstance(refused, core.Refused)
        assert refused.code == codes.NOT_PRIMARY_COREAPP


def _numbered(request: core.Request, n: int) -> core.Request:
    request.n = n
    return request


async def test_dead_letters_are_posted_after_a_replay_whose_commit_had_an_unknown_outcome(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await running_with(world, 0)
    bodies = running.shard.context.bodies
    rows = [callbacks.Callback(1, 0, BUSINESS, "gBEG1", "status_change", b"{}", 1)]
    async with world.database.transaction() as connection:
        await callbacks.enqueue(connection, rows, bodies.seal(rows))
        await callbacks.mark_dead(connection, rows, bodies.seal(rows))
    commit, lost = Database.commit, list[object]()

    async def lossy(self: Database, work: Any) -> Any:
        result = await commit(self, work)
        if not lost and isinstance(result, list) and result:
            lost.append(result)
            error = sa.exc.OperationalError("COMMIT", {}, pymysql.err.OperationalError(2013, "Lost connection"))
            outages.note_commit(error)
            raise error
        return result

    monkeypatch.setattr(Database, "commit", lossy)
    response = await running.client.call(lambda n: core.ReplayCallbacks(n, [1], "ann@desk"))
    assert isinstance(response, core.Refused)
    assert lost
    # The operator repeats the command, since the first one has failed.
    await running.client.call(lambda n: core.ReplayCallbacks(n, [1], "ann@desk"))
    async with asyncio.timeout(5):
        await world.sink.signals.until(lambda: bool(world.sink.posts))


async def test_a_purge_whose_commit_had_an_unknown_outcome_is_counted_and_audited_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await running_with(world, 0)
    bodies = running.shard.context.bodies
    rows = [callbacks.Callback(1, 0, BUSINESS, "gBEG1", "status_change", b"{}", 1)]
    async with world.database.transaction() as connection:
        await callbacks.enqueue(connection, rows, bodies.seal(rows))
        await callbacks.mark_dead(connection, rows, bodies.seal(rows))
    add, transaction, lost = callback_purges.add, Database.transaction, list[str]()

    async def noted(*given: Any) -> None:
        lost.append("next")
        await add(*given)

    @contextlib.asynccontextmanager
    async def lossy(self: Database, **options: Any) -> AsyncIterator[Connection]:
        async with transaction(self, **options) as connection:
            yield connection
        if lost == ["next"]:
            lost.append("done")
            raise sa.exc.OperationalError("COMMIT", {}, pymysql.err.OperationalError(2013, "Lost connection"))

    monkeypatch.setattr(callback_purges, "add", noted)
    monkeypatch.setattr(Database, "transaction", lossy)
    response = await running.client.call(lambda n: core.PurgeCallbacks(n, [1], "ann@desk", "dead"))
    assert (lost, response.count) == (["next", "done"], 1)
    async with world.database.reading() as connection:
        (audited,) = await callback_purges.list_after(connection, (0, 0))
    assert audited.deleted == 1
