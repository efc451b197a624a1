"""Segments of ended callbacks that are merged or deleted, and attempts that are swept."""

from __future__ import annotations

from tests.conftest import DatabaseFactory
from tests.storage.history_rows import ME, NOW, as_it_is, callback, end, ended, enqueue, seq_at, texts_of, tried
from tidings.storage.business import callback_history, callback_views
from tidings.storage.business.callback_views import CallbackFilter


async def test_small_segments_are_merged_without_a_change_of_their_callbacks(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    # One per second, then a large segment.
    small = [callback(seq_at(NOW + 1000 * place), f"m{place}", peer=f"155501{place:05}") for place in range(130)]
    large = [callback(seq_at(NOW + 60_000, 1 + place)) for place in range(20)]
    for place, one in enumerate(small):
        one.body = b"body %d" % place
    async with database.transaction() as connection:
        for one in small:
            await end(connection, one)
        await end(connection, *large)
        before = await callback_views.list_callbacks(connection, ME, CallbackFilter(), limit=1000)
        seqs = [one.seq for one in small]
        for some in (seqs[:50], seqs[50:100], seqs[100:]):
            for merge in await callback_history.read_mergeable(connection, ME, some, ended_until=NOW):
                assert await callback_history.replace(connection, merge)
                # A repeated commit changes nothing.
                assert not await callback_history.replace(connection, merge)
        sizes = (await callback_history.count_page(connection, ME, after=0, limit=1000)).sizes
        merged = await callback_views.list_callbacks(connection, ME, CallbackFilter(), limit=1000)
        records = [await callback_views.read_callback(connection, ME, one.seq) for one in small]
        of_peer = CallbackFilter(recipient=small[7].recipient)
        (named,) = (await callback_views.list_callbacks(connection, ME, of_peer)).rows
    assert merged == before
    assert [size for _, size in sizes] == [50, 20, 50, 30]
    assert [texts_of(row)[0] for row in records if row is not None] == [one.body for one in small]
    assert named.seq == small[7].seq


async def test_segments_that_ended_late_or_were_deleted_are_not_merged(database_factory: DatabaseFactory) -> None:
    database, found = await database_factory("business"), [callback(seq_at(NOW, place)) for place in range(5)]
    seqs = [one.seq for one in found]
    async with database.transaction() as connection:
        for one, at in zip(found, (NOW, NOW, NOW, NOW + 1, NOW), strict=True):
            await callback_history.add(connection, [ended(one, at=at)], as_it_is)
        assert await callback_history.read_mergeable(connection, ME, seqs[3:], ended_until=NOW) == []
        (merge,) = await callback_history.read_mergeable(connection, ME, seqs, ended_until=NOW)
        assert merge.replaced == [*seqs[:3], seqs[4]]
        await callback_history.delete_page(connection, ME, until=seqs[0], ended_until=NOW, limit=1)
        assert not await callback_history.replace(connection, merge)
        left = (await callback_history.count_page(connection, ME, after=0, limit=9)).sizes
    assert left == [(seq, 1) for seq in seqs[1:]]


async def test_segments_are_deleted_by_pages_unless_they_ended_later(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    found = [callback(seq_at(NOW, place)) for place in range(6)]
    late = callback(seq_at(NOW - 1))
    async with database.transaction() as connection:
        for one in found:
            await end(connection, one)
        await callback_history.add(connection, [ended(late, at=NOW + 1)], as_it_is)
        pages = [
            await callback_history.delete_page(connection, ME, until=found[4].seq, ended_until=NOW, limit=3)
            for _ in range(3)
        ]
        left = await callback_views.list_callbacks(connection, ME, CallbackFilter())
    assert [(page.callbacks, page.is_last) for page in pages] == [(3, False), (2, True), (0, True)]
    assert [row.seq for row in left.rows] == [found[5].seq, late.seq]


async def test_attempts_at_callbacks_in_the_queue_are_not_swept(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    done, waiting, new = (callback(seq_at(NOW, place)) for place in range(3))
    async with database.transaction() as connection:
        await enqueue(connection, waiting)
        attempts = [tried(one, number) for one in (done, waiting, new) for number in (1, 2)]
        await callback_history.save_attempts(connection, attempts)
        sweep = {"until": waiting.seq, "tried_until": NOW, "limit": 1}
        await callback_history.save_attempts(connection, [tried(done, 3, at=NOW + 1)])
        first = await callback_history.sweep_attempts(connection, ME, after=0, **sweep)
        second = await callback_history.sweep_attempts(connection, ME, after=first.last or 0, **sweep)
        third = await callback_history.sweep_attempts(connection, ME, after=second.last or 0, **sweep)
    assert [(page.deleted, page.last) for page in (first, second, third)] == [
        (2, done.seq),
        (0, waiting.seq),
        (0, None),
    ]
