"""Callback queue on disk and its dead letters."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tests.conftest import DatabaseFactory
from tidings.storage.business import callback_replays, callbacks
from tidings.storage.business.callbacks import Callback
from tidings.storage.database import Connection

ME = "15550000000"


async def enqueue(connection: Connection, found: Sequence[Callback]) -> None:
    await callbacks.enqueue(connection, found, [row.body for row in found])


async def mark_dead(connection: Connection, found: Sequence[Callback]) -> None:
    await callbacks.mark_dead(connection, found, [row.body for row in found])


async def reschedule(connection: Connection, found: Sequence[Callback]) -> None:
    await callbacks.reschedule(connection, found, [row.body for row in found])


def callback(seq: int, shard: int = 0) -> Callback:
    return Callback(seq, shard, ME, f"m{seq}", "status_change", b'{"\xc3\xa9":1}', 1000)


async def test_pending_callbacks_are_listed_by_shard_in_order_and_in_pages(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        assert await callbacks.highest_seq(connection) == 0
        await enqueue(connection, [callback(seq) for seq in (5, 3, 2**62, 4)] + [callback(9, 1)])
        for _ in range(2):
            await enqueue(connection, [dataclasses.replace(callback(3), body=b"other")])
        first = await callbacks.list_pending(connection, 0, after=0, limit=2)
        rest = await callbacks.list_pending(connection, 0, after=4, limit=100)
        assert [row.seq for row in first] == [3, 4]
        assert [row.seq for row in rest] == [5, 2**62]
        assert first[0] == callback(3)
        assert await callbacks.count_pending(connection, 0) == 4
        assert await callbacks.highest_seq(connection) == 2**62
        await callbacks.finish(connection, [3, 4, 77])
        assert await callbacks.count_pending(connection, 0) == 2
        await callbacks.finish(connection, [])


async def test_a_failed_attempt_and_its_due_time_are_stored(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    failed = [
        dataclasses.replace(callback(1), attempt=2, due_at=99_000, last_error="é" * 300),
        dataclasses.replace(callback(2), attempt=1, due_at=5, last_error="HTTP 500"),
    ]
    async with database.transaction() as connection:
        await enqueue(connection, [callback(1), callback(2), callback(3)])
        for _ in range(2):
            await reschedule(connection, failed)
        await reschedule(connection, [])
        rows = await callbacks.list_pending(connection, 0, after=0, limit=10)
    assert rows == [dataclasses.replace(failed[0], last_error="é" * 255), failed[1], callback(3)]


async def test_dead_letters_leave_the_queue_and_return_with_their_seq(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    dead = [dataclasses.replace(callback(seq), attempt=9, last_error="HTTP 404") for seq in (1, 2, 3)]
    async with database.transaction() as connection:
        await enqueue(connection, [callback(seq) for seq in (1, 2, 3, 4)] + [callback(5, 1)])
        await mark_dead(connection, [*dead, dataclasses.replace(callback(5, 1), attempt=9)])
        await mark_dead(connection, [])
        assert [row.seq for row in await callbacks.list_pending(connection, 0, after=0, limit=10)] == [4]
        assert [row.seq for row in await callbacks.list_dead(connection)] == [1, 2, 3, 5]
        assert [row.seq for row in await callbacks.list_dead(connection, after=2, limit=1)] == [3]
        assert [row.seq for row in await callbacks.take_dead(connection, 0, 2000, [2, 5, 77])] == [2]
        (back, _) = await callbacks.list_pending(connection, 0, after=0, limit=10)
        assert back == dataclasses.replace(callback(2), created_at=2000)
        assert back.event_id == "evt_2"
        assert [row.seq for row in await callbacks.take_dead(connection, 0, 2000)] == [1, 3]
        assert await callbacks.take_dead(connection, 0, 2000) == []
        assert await callbacks.take_dead(connection, 0, 2000, []) == []


async def test_expired_dead_letters_are_deleted_in_steps_and_replayed_ones_kept(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    day = 24 * 3600 * 1000
    old = [dataclasses.replace(callback(day * 1000 << 5 | n), created_at=day) for n in range(3)]
    waiting, replayed, other, fresh = (
        dataclasses.replace(callback(day * 1000 << 5 | 3), created_at=day),
        dataclasses.replace(callback(day * 1000 << 5 | 4), created_at=3 * day),
        dataclasses.replace(callback(day * 1000 << 5 | 5, 1), created_at=day),
        dataclasses.replace(callback(3 * day * 1000 << 5), created_at=3 * day),
    )
    async with database.transaction() as connection:
        await enqueue(connection, [waiting])
        await mark_dead(connection, [*old, replayed, other, fresh])
        deleted = [await callbacks.delete_dead_before(connection, 0, 2 * day, 2) for _ in range(3)]
        left = [row.seq for row in await callbacks.list_dead(connection)]
        pending = await callbacks.count_pending(connection, 0)
    assert deleted == [2, 1, 0]
    assert left == [replayed.seq, other.seq, fresh.seq]
    assert pending == 1


async def test_unsealed_bodies_of_an_earlier_release_are_listed_in_pages_and_replaced(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await callbacks.enqueue(connection, [callback(seq) for seq in (1, 2, 3)], [b"{}", b"\x01{", b"{}"])
        await callbacks.mark_dead(connection, [callback(4), callback(5, 1)], [b"{}", b"{}"])
        first = await callbacks.list_unsealed(connection, 0, after=0, limit=2)
        assert [row.seq for row in first] == [1, 3]
        await callbacks.replace_bodies(connection, first, [b"\x01one", b"\x01three"])
        assert [row.seq for row in await callbacks.list_unsealed(connection, 0, after=0, limit=9)] == [4]
        await callbacks.replace_bodies(connection, [], [])
        rows = await callbacks.list_pending(connection, 0, after=0, limit=9)
    assert [row.body for row in rows] == [b"\x01one", b"\x01{", b"\x01three"]


async def test_replays_are_stored_listed_in_pages_and_deleted_when_expired(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    kept = [callback_replays.Replay(seq, at, 0, "ann@desk") for at, seq in ((100, 3), (100, 7), (200, 3))]
    other = callback_replays.Replay(9, 50, 1, "x" * 300)
    async with database.transaction() as connection:
        await callback_replays.add(connection, [*kept, other])
        await callback_replays.add(connection, [])
        first = await callback_replays.list_after(connection, (0, 0), limit=2)
        assert [replay.by for replay in first] == ["x" * 255, "ann@desk"]
        rest = await callback_replays.list_after(connection, (first[-1].at, first[-1].seq))
        assert [*first[1:], *rest] == kept
        assert [await callback_replays.delete_before(connection, 200, 1) for _ in range(4)] == [1, 1, 1, 0]
        left = await callback_replays.list_after(connection, (0, 0))
    assert [(replay.at, replay.seq) for replay in left] == [(200, 3)]
