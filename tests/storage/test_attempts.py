"""Ended callbacks with their attempts, in compressed segments."""

from __future__ import annotations

import dataclasses

import msgspec
import sqlalchemy as sa

from tests import statements
from tests.conftest import DatabaseFactory
from tests.storage.history_rows import (
    ANN,
    ME,
    NOW,
    OTHER,
    as_it_is,
    callback,
    end,
    ended,
    enqueue,
    seq_at,
    status_callbacks,
    texts_of,
    tried,
)
from tidings.storage.business import callback_history, callback_views
from tidings.storage.business.callback_history import Segment
from tidings.storage.business.callback_views import CallbackFilter
from tidings.storage.business.callbacks import Callback


async def test_ended_callbacks_are_kept_with_their_texts_and_last_attempts(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    first, second, third = (callback(seq_at(NOW, place), f"m{place}") for place in range(3))
    second.body = b"\x00'\xff\\"
    async with database.transaction() as connection:
        await enqueue(connection, third)
        last = [
            ended(second, 3, status=204, at=NOW + 1, response=b"'ok"),
            ended(first),
        ]
        # A repeated commit changes nothing.
        for _ in range(2):
            await callback_history.add(connection, last, as_it_is)
        await callback_history.add(connection, [], as_it_is)
        records = [await callback_views.read_callback(connection, ME, one.seq) for one in (first, second, third)]
        assert await callback_views.read_callback(connection, ME, 77) is None
        assert await callback_views.read_callback(connection, OTHER, first.seq) is None
        assert await callback_history.highest_seq(connection, ME) == second.seq
        assert await callback_history.highest_seq(connection, OTHER) == 0
    found = [record for record in records if record is not None]
    shown = [row.entry for row in found]
    assert [(row.state, row.attempt, row.tried_at, row.took, row.status) for row in shown] == [
        ("done", 1, NOW, 12, 200),
        ("done", 3, NOW + 1, 12, 204),
        ("pending", 0, None, None, None),
    ]
    assert [(row.entry.subject, row.entry.recipient, row.entry.kind) for row in found[:2]] == [
        ("m0", ANN, "status_change"),
        ("m1", ANN, "status_change"),
    ]
    assert [texts_of(row) for row in found[:2]] == [(b"body", b""), (b"\x00'\xff\\", b"'ok")]
    assert found[2].body == b"body"
    assert [[one.attempt for one in row.attempts] for row in found] == [[1], [3], []]


async def test_a_seq_that_is_known_keeps_its_first_callback(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await end(connection, callback(5, "first"))
        await end(connection, callback(5, "second"))
        found = await callback_views.list_callbacks(connection, ME, CallbackFilter())
    assert [(row.seq, row.subject) for row in found.rows] == [(5, "first")]


def test_a_segment_spans_a_minute_of_one_number_and_256_kib() -> None:
    minute = 60_000_000 << 5
    other = Callback(3, 0, OTHER, "m", "status_change", b"body", 1)
    small = [callback(seq) for seq in (1, 2, 1 + minute, 2 + minute, 3 + 3 * minute)]
    large = [callback(5 * minute + place) for place in range(3)]
    for one in large:
        one.body = b"x" * 200 * 1024
    made = callback_history.segments_of([ended(one) for one in (*large, *small, other)], as_it_is)
    assert [(row.account, row.first_seq, row.last_seq, row.size) for row in made] == [
        (ME, 1, 1 + minute, 3),
        (ME, 2 + minute, 2 + minute, 1),
        (ME, 3 + 3 * minute, 3 + 3 * minute, 1),
        *((ME, one.seq, one.seq, 1) for one in large),
        (OTHER, 3, 3, 1),
    ]


def test_51_callbacks_take_4_kib() -> None:
    found = status_callbacks(51)
    (segment,) = callback_history.segments_of([ended(one, response=b"ok") for one in found], as_it_is)
    assert sum(len(one.body) for one in found) > 5 * 1024
    assert len(segment.fingerprints) + len(segment.entries) + len(segment.texts) < 4 * 1024


async def test_segments_that_were_not_compressed_stay_readable(database_factory: DatabaseFactory) -> None:
    database, found = await database_factory("business"), status_callbacks(51)
    entries = [
        (one.seq, 0, one.subject, one.kind, one.recipient, NOW, one.request_id, one.event, 1, NOW, 5, 200, 0, place)
        for place, one in enumerate(found)
    ]
    encode = msgspec.msgpack.encode
    parts = encode([(found[-1].seq, encode([(one.body, b"ok") for one in found]))])
    plain = Segment(ME, found[-1].seq, found[0].seq, 51, NOW, b"", encode(entries), parts)
    async with database.transaction() as connection:
        await connection.execute(sa.insert(callback_history.table).values(**dataclasses.asdict(plain)))
        rows = (await callback_views.list_callbacks(connection, ME, CallbackFilter(), limit=100)).rows
        record = await callback_views.read_callback(connection, ME, found[7].seq)
    assert [row.event_id for row in rows] == [one.event for one in reversed(found)]
    assert record is not None
    assert texts_of(record) == (found[7].body, b"ok")


async def test_many_ended_callbacks_are_found_by_one_query_per_50(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    found = [callback(seq_at(NOW + 1000 * place), f"m{place}") for place in range(150)]
    for place, one in enumerate(found):
        one.body = b"body %d" % place
    async with database.transaction() as connection:
        # Of two shards, whose segments overlap, and one that is not in the history.
        for start in range(0, 148, 4):
            for offset in (0, 1):
                await end(connection, *found[start + offset : start + 4 : 2])
        await enqueue(connection, found[149])
        with statements.recorded("FROM callback_history") as queries:
            ended = await callback_history.list_ended(connection, ME, [one.seq for one in reversed(found)])
        assert len(queries) == 3
        assert sorted(ended) == [one.seq for one in found[:148]]
        assert await callback_history.list_ended(connection, OTHER, [found[0].seq]) == set()
        with statements.recorded("FROM callback_history") as queries:
            stored = await callback_history.find_all(connection, ME, [one.seq for one in found[100:150]])
    assert len(queries) == 1
    assert [one.entry.subject for one in stored] == [f"m{place}" for place in range(100, 148)]
    texts = [callback_history.decode_texts(one.part.sealed)[one.entry.index_in_part].body for one in stored]
    assert texts == [one.body for one in found[100:148]]
    assert len({id(one.part) for one in stored}) == 24


async def test_the_latest_20_attempts_are_kept_with_their_responses(database_factory: DatabaseFactory) -> None:
    database, one = await database_factory("business"), callback(seq_at(NOW))
    async with database.transaction() as connection:
        await enqueue(connection, one)
        for number in range(1, 26):
            await callback_history.save_attempts(
                connection, [tried(one, number, status=None if number % 2 else 500, at=NOW + number, response=b"no")]
            )
        record = await callback_views.read_callback(connection, ME, one.seq)
    assert record is not None
    assert [row.attempt for row in record.attempts] == list(range(6, 26))
    assert [(row.status, row.error, row.response) for row in record.attempts[:2]] == [
        (500, "", b"no"),
        (None, "TimeoutError: ", b"no"),
    ]


async def test_the_headers_of_an_attempt_contain_no_secret(database_factory: DatabaseFactory) -> None:
    database, one = await database_factory("business"), callback(seq_at(NOW))
    one.request_id = "r1"
    async with database.transaction() as connection:
        await end(connection, one)
        record = await callback_views.read_callback(connection, ME, one.seq)
    assert record is not None
    assert dict(callback_views.headers_of(record.entry, record.attempts[0])) == {
        "Content-Type": "application/json",
        "User-Agent": "tidings",
        "webhook-id": one.event_id,
        "webhook-timestamp": "1700000000",
        "X-Request-ID": "r1",
    }
