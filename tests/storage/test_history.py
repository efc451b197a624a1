"""History: times of messages, ended callbacks with their attempts, and the lists of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import pytest
import sqlalchemy as sa

from tests import statements
from tests.conftest import DatabaseFactory
from tidings.storage.business import (
    callback_history,
    callback_views,
    callbacks,
    group_messages,
    message_views,
    messages,
    shards,
)
from tidings.storage.business.callback_history import Attempt, EndedAttempt, Segment
from tidings.storage.business.callback_views import CallbackFilter, CallbackRecord
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.group_messages import GroupReceipt
from tidings.storage.business.message_views import MessageFilter, MessageTimeline
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.database import Connection, Database
from tidings.wire import ids

ME, OTHER = "15550000000", "15550000001"
ANN, BEN = "15550110001", "15550110002"
NOW = 1_700_000_000_000


def an_id(milliseconds: int, name: str = "") -> str:
    """Return the id of a message made at this time."""
    return ids.bound(milliseconds / 1000) + name.rjust(15, "0")


def message(
    message_id: str, peer: str = ANN, kind: str = "text", status: Status = Status.ACCEPTED, account: str = ME
) -> MessageRow:
    made = ids.made_at(message_id)
    assert made is not None
    return MessageRow(message_id, account, 0, peer, kind, status, int(made * 1000) + 5, "r")


def seq_at(milliseconds: int, place: int = 0) -> int:
    return (milliseconds * 1000 + place) << 5


def callback(
    seq: int, subject: str = "m", *, peer: str = ANN, kind: str = "status_change", event: str = ""
) -> Callback:
    return Callback(seq, 0, ME, subject, kind, b"body", seq // 32_000, event=event, recipient=peer)


def tried(one: Callback, number: int = 1, *, status: int | None = 200, at: int = NOW, response: bytes = b"") -> Attempt:
    error = "" if status is not None else "TimeoutError: "
    return callback_history.attempt(one, number, at, 12.7, status, error=error, response=response)


async def enqueue(connection: Connection, *found: Callback) -> None:
    await callbacks.enqueue(connection, found, [one.body for one in found])


def as_it_is(account: str, name: int, texts: bytes) -> bytes:
    """Return texts unsealed."""
    return texts


async def end(connection: Connection, *found: Callback) -> None:
    """Add callbacks to the history."""
    await callback_history.add(connection, [EndedAttempt(one, tried(one)) for one in found], as_it_is)


def texts_of(record: CallbackRecord) -> tuple[bytes, bytes]:
    """Return the body of an ended callback, and the response."""
    assert record.ended is not None
    texts = callback_history.decode_texts(record.ended.part.sealed)[record.ended.entry.index_in_part]
    return texts.body, texts.response


async def timeline(connection: Connection, message_id: str) -> MessageTimeline:
    found = await message_views.read_timeline(connection, ME, message_id)
    assert found is not None
    return found


async def test_each_step_of_a_message_has_its_time(database_factory: DatabaseFactory) -> None:
    database, name = await database_factory("business"), an_id(NOW)
    async with database.transaction() as connection:
        await messages.add(connection, [message(name)])
        await messages.note_encrypted(connection, [name], NOW + 10)
        for status in (Status.SENT, Status.DELIVERED, Status.READ):
            await messages.advance(connection, {name: status}, NOW + 100 * status)
        # A repeated commit changes nothing.
        await messages.note_encrypted(connection, [name], NOW + 999)
        await messages.advance(connection, {name: Status.READ}, NOW + 999)
        found = (await timeline(connection, name)).message
    assert (found.stored_at, found.encrypted_at) == (NOW + 5, NOW + 10)
    assert (found.sent_at, found.delivered_at, found.read_at) == (NOW + 200, NOW + 300, NOW + 400)
    assert (found.status, found.failed_at, found.failure) == (Status.READ, None, None)


async def test_skipped_steps_get_the_time_of_the_later_one(database_factory: DatabaseFactory) -> None:
    database, first, second = await database_factory("business"), an_id(NOW, "1"), an_id(NOW, "2")
    async with database.transaction() as connection:
        await messages.add(connection, [message(first), message(second)])
        await messages.advance(connection, {first: Status.SENT}, NOW + 1)
        await messages.advance(connection, {first: Status.READ, second: Status.DELIVERED}, NOW + 2)
        read, delivered = [(await timeline(connection, name)).message for name in (first, second)]
    assert (read.sent_at, read.delivered_at, read.read_at) == (NOW + 1, NOW + 2, NOW + 2)
    assert (delivered.sent_at, delivered.delivered_at, delivered.read_at) == (NOW + 2, NOW + 2, None)


async def test_a_failed_message_has_the_time_and_the_code(database_factory: DatabaseFactory) -> None:
    database, sent, refused = await database_factory("business"), an_id(NOW, "1"), an_id(NOW, "2")
    async with database.transaction() as connection:
        await messages.add(connection, [message(sent), message(refused, status=Status.FAILED)])
        await messages.advance(connection, {sent: Status.FAILED}, NOW + 7)
        for at in (NOW + 7, NOW + 8):
            await messages.note_failures(connection, {sent: 410, refused: 1013, "unknown": 500}, at)
        found = [(await timeline(connection, name)).message for name in (sent, refused)]
    assert [(row.status, row.failed_at, row.failure) for row in found] == [
        (Status.FAILED, NOW + 7, 410),
        (Status.FAILED, NOW + 7, 1013),
    ]


async def test_a_new_message_has_room_for_its_times(database_factory: DatabaseFactory) -> None:
    database, name = await database_factory("business"), an_id(NOW)
    columns = messages.table.c
    async with database.transaction() as connection:
        await messages.add(connection, [message(name)])
        query = sa.select(columns.sent_at, columns.delivered_at, columns.read_at, columns.failed_at)
        stored = (await connection.execute(query)).one()
        shown = (await timeline(connection, name)).message
    assert tuple(stored) == ((None,) * 4 if database.engine.dialect.name == "sqlite" else (0, 0, 0, None))
    assert (shown.sent_at, shown.delivered_at, shown.read_at, shown.failed_at) == (None, None, None, None)


async def test_only_a_failure_moves_a_message_to_another_list(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    delivered, failed, received, refused = names = [an_id(NOW + place) for place in range(4)]
    first = dict(zip(names, (Status.ACCEPTED, Status.ACCEPTED, Status.RECEIVED, Status.FAILED), strict=True))
    listings = sa.select(messages.table.c.listing).order_by(messages.table.c.id)
    async with database.transaction() as connection:
        await messages.add(connection, [message(name, status=status) for name, status in first.items()])
        assert list((await connection.execute(listings)).scalars()) == [0, 0, 1, 2]
        for status in (Status.SENT, Status.DELIVERED, Status.READ):
            await messages.advance(connection, {delivered: status}, NOW)
        await messages.advance(connection, {failed: Status.FAILED, received: Status.MARKED_READ}, NOW)
        assert list((await connection.execute(listings)).scalars()) == [0, 2, 1, 2]
        of_failed = await message_views.list_messages(connection, ME, MessageFilter(status=Status.FAILED))
    assert [row.id for row in of_failed.rows] == [refused, failed]


async def test_messages_of_a_release_without_lists_are_moved_to_theirs(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    statuses = (Status.SENT, Status.FAILED, Status.RECEIVED, Status.MARKED_READ, Status.READ, Status.FAILED)
    rows = [message(an_id(NOW + place), status=status) for place, status in enumerate(statuses)]
    async with database.transaction() as connection:
        await messages.add(connection, rows)
        await connection.execute(messages.table.update().values(listing=0))
        pages = [await messages.find_misplaced(connection, after="", limit=4)]
        while (after := pages[-1].after) is not None:
            pages.append(await messages.find_misplaced(connection, after=after, limit=4))
        for page in pages:
            for listing, found in page.ids.items():
                await messages.move(connection, listing, found)
        listings = sa.select(messages.table.c.listing).order_by(messages.table.c.id)
        assert list((await connection.execute(listings)).scalars()) == [0, 2, 1, 1, 0, 2]
        inbound, failed = messages.Listing.INBOUND, messages.Listing.FAILED
        assert [(page.ids[inbound], page.ids[failed]) for page in pages] == [
            ([rows[2].id, rows[3].id], [rows[1].id]),
            ([], [rows[5].id]),
        ]
        assert (await messages.find_misplaced(connection, after="", limit=10)).ids == {inbound: [], failed: []}
        of_failed = await message_views.list_messages(connection, ME, MessageFilter(status=Status.FAILED))
    assert [row.id for row in of_failed.rows] == [rows[5].id, rows[1].id]


async def test_messages_of_a_rare_status_are_found_over_several_pages(
    database_factory: DatabaseFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_views, "EXAMINED", 20)
    database = await database_factory("business")
    rows = [
        message(an_id(NOW + n), kind=("text", "image")[n % 2], status=Status.SENT if n % 30 == 5 else Status.READ)
        for n in range(100)
    ]
    async with database.transaction() as connection:
        await messages.add(connection, rows)
    found = await pages_of(database, MessageFilter(status=Status.SENT))
    assert [name for page in found for name in page] == [rows[n].id for n in (95, 65, 35, 5)]
    assert len(found) == 4, "each page searches some 20 messages"


async def test_a_message_that_did_not_fail_gets_no_code(database_factory: DatabaseFactory) -> None:
    database, name = await database_factory("business"), an_id(NOW)
    async with database.transaction() as connection:
        await messages.add(connection, [message(name, status=Status.READ)])
        await messages.note_failures(connection, {name: 500}, NOW)
        assert (await timeline(connection, name)).message.failure is None


async def test_without_history_the_statements_are_those_of_before(database_factory: DatabaseFactory) -> None:
    database, name = await database_factory("business"), an_id(NOW)
    async with database.transaction() as connection:
        await messages.add(connection, [message(name)])
        with statements.noted("UPDATE messages") as noted:
            for status in (Status.SENT, Status.DELIVERED, Status.READ):
                await messages.advance(connection, {name: status})
            found = (await timeline(connection, name)).message
    assert sum(statement.count("UPDATE messages") for statement in noted) == 3
    assert not any(time in statement for statement in noted for time in ("sent_at", "delivered_at", "read_at"))
    assert (found.status, found.sent_at, found.delivered_at, found.read_at) == (Status.READ, None, None, None)


async def test_the_times_of_each_participant_of_a_group_are_kept(database_factory: DatabaseFactory) -> None:
    database, name = await database_factory("business"), an_id(NOW)
    async with database.transaction() as connection:
        await messages.add(connection, [message(name, "group")])
        await group_messages.save_receipts(connection, [GroupReceipt(name, ANN, 3, NOW + 1)])
        await group_messages.save_receipts(
            connection, [GroupReceipt(name, ANN, 4, NOW + 2, NOW + 2), GroupReceipt(name, BEN, 3)]
        )
        found = await timeline(connection, name)
    assert found.participants == [GroupReceipt(name, ANN, 4, NOW + 1, NOW + 2), GroupReceipt(name, BEN, 3)]


async def test_ended_callbacks_are_kept_with_their_texts_and_last_attempts(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    first, second, third = (callback(seq_at(NOW, place), f"m{place}") for place in range(3))
    second.body = b"\x00'\xff\\"
    async with database.transaction() as connection:
        await enqueue(connection, third)
        last = [
            EndedAttempt(second, tried(second, 3, status=204, at=NOW + 1, response=b"'ok")),
            EndedAttempt(first, tried(first)),
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
    made = callback_history.segments_of([EndedAttempt(one, tried(one)) for one in (*large, *small, other)], as_it_is)
    assert [(row.account, row.first_seq, row.last_seq, row.size) for row in made] == [
        (ME, 1, 1 + minute, 3),
        (ME, 2 + minute, 2 + minute, 1),
        (ME, 3 + 3 * minute, 3 + 3 * minute, 1),
        *((ME, one.seq, one.seq, 1) for one in large),
        (OTHER, 3, 3, 1),
    ]


def status_callbacks(count: int) -> list[Callback]:
    """Return the statuses of messages to different recipients, three for each, with bodies as they are posted."""
    found = []
    for place in range(count):
        number, step = place // 3, place % 3 + 2
        name, peer = an_id(NOW + number, f"{number * 7919**3 % 10**15}"), f"1555{number * 7919 % 10**7:07}"
        one = callback(seq_at(NOW, 256 * place), name, peer=peer, event=callbacks.status_event(name, peer, step))
        text = f'{{"id":"{name}","recipient_id":"{peer}","status":"{Status(step).name}","timestamp":"1700000000"}}'
        one.body, one.request_id = f'{{"statuses":[{text}]}}'.encode(), an_id(NOW + number, "request")
        found.append(one)
    return found


def test_51_callbacks_take_4_kib() -> None:
    found = status_callbacks(51)
    (segment,) = callback_history.segments_of(
        [EndedAttempt(one, tried(one, response=b"ok")) for one in found], as_it_is
    )
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
            await callback_history.add(connection, [EndedAttempt(one, tried(one, at=at))], as_it_is)
        assert await callback_history.read_mergeable(connection, ME, seqs[3:], ended_until=NOW) == []
        (merge,) = await callback_history.read_mergeable(connection, ME, seqs, ended_until=NOW)
        assert merge.replaced == [*seqs[:3], seqs[4]]
        await callback_history.delete_page(connection, ME, until=seqs[0], ended_until=NOW, limit=1)
        assert not await callback_history.replace(connection, merge)
        left = (await callback_history.count_page(connection, ME, after=0, limit=9)).sizes
    assert left == [(seq, 1) for seq in seqs[1:]]


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
        with statements.noted("FROM callback_history") as queries:
            ended = await callback_history.list_ended(connection, ME, [one.seq for one in reversed(found)])
        assert len(queries) == 3
        assert sorted(ended) == [one.seq for one in found[:148]]
        assert await callback_history.list_ended(connection, OTHER, [found[0].seq]) == set()
        with statements.noted("FROM callback_history") as queries:
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


async def pages_of(database: Database, choice: MessageFilter, limit: int = 3) -> list[list[str]]:
    """Return the ids of all pages."""
    found, before = [], ""
    async with database.reading() as connection:
        while True:
            page = await message_views.list_messages(connection, ME, choice, before=before, limit=limit)
            found.append([row.id for row in page.rows])
            if page.older is None:
                return found
            before = page.older


async def test_messages_are_listed_newest_first_and_filtered(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    kinds, statuses = ("text", "image", "audio"), (Status.SENT, Status.READ, Status.FAILED, Status.RECEIVED)
    rows = [message(an_id(NOW + 1000 * n, str(n)), (ANN, BEN)[n % 2], kinds[n % 3], statuses[n % 4]) for n in range(24)]
    async with database.transaction() as connection:
        await messages.add(connection, [*rows, message(an_id(NOW + 500), account=OTHER)])

    async def chosen(choice: MessageFilter) -> list[str]:
        return [name for page in await pages_of(database, choice) for name in page]

    newest = list(reversed(rows))
    pages = await pages_of(database, MessageFilter())
    assert [len(page) for page in pages] == [3] * 8
    assert [name for page in pages for name in page] == [row.id for row in newest]
    assert await chosen(MessageFilter(recipient=BEN)) == [row.id for row in newest if row.peer == BEN]
    assert await chosen(MessageFilter(kind="image")) == [row.id for row in newest if row.kind == "image"]
    assert await chosen(MessageFilter(status=Status.READ)) == [row.id for row in newest if row.status == Status.READ]
    of_a_time = MessageFilter(since_id=ids.bound(NOW / 1000 + 3), until_id=ids.bound(NOW / 1000 + 5))
    assert await chosen(of_a_time) == [rows[4].id, rows[3].id]
    assert await chosen(MessageFilter(id=rows[7].id)) == [rows[7].id]
    assert await chosen(MessageFilter(id=rows[7].id, kind="audio")) == []
    assert await chosen(MessageFilter(id=an_id(NOW + 500))) == [], "of another number"
    both = MessageFilter(recipient=ANN, kind="text", status=Status.SENT)
    assert await chosen(both) == [row.id for row in newest if rows.index(row) % 12 == 0]
    assert await chosen(MessageFilter(kind="é")) == []
    assert await chosen(MessageFilter(recipient="' OR 1=1")) == []


async def test_a_page_of_a_recipient_examines_2000_messages(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    rows = [message(an_id(NOW + n, str(n)), kind="image" if n == 0 else "text") for n in range(2500)]
    async with database.transaction() as connection:
        await messages.add(connection, rows)
    assert await pages_of(database, MessageFilter(recipient=ANN, kind="image")) == [[], [rows[0].id]]


async def callback_pages(database: Database, choice: CallbackFilter, limit: int = 3) -> list[list[int]]:
    """Return the `seq` of all pages."""
    found: list[list[int]] = []
    before: int | None = None
    async with database.reading() as connection:
        while True:
            page = await callback_views.list_callbacks(connection, ME, choice, before=before, limit=limit)
            found.append([row.seq for row in page.rows])
            if page.older is None:
                return found
            before = page.older


@pytest.fixture
async def filled(database_factory: DatabaseFactory) -> tuple[Database, Sequence[Callback]]:
    """Database with 24 callbacks, of which each fourth is pending, failing, given up or done."""
    database = await database_factory("business")
    found = [
        Callback(
            seq_at(NOW + 1000 * n),
            n % 2,
            ME,
            an_id(NOW, str(n)),
            ("status_change", "inbound_message")[n % 3 == 0],
            b"body",
            NOW + 1000 * n,
            recipient=(ANN, BEN)[n % 2],
            event=callbacks.status_event(an_id(NOW, str(n)), ANN, 3) if n % 3 else "",
        )
        for n in range(24)
    ]
    async with database.transaction() as connection:
        await shards.create_shards(connection, 2)
        await enqueue(connection, *(one for place, one in enumerate(found) if place % 4 != 3))
        for one in found[1::4]:
            one.attempt, one.last_error, one.due_at = 2, "HTTP 500", NOW + 99_000_000
        await callbacks.reschedule(connection, found[1::4], [b"body"] * 6)
        await callbacks.bury(connection, found[2::4], [b"body"] * 6)
        await end(connection, *found[3::4])
        await callbacks.finish(connection, [one.seq for one in found[3::4]])
        others = Callback(seq_at(NOW + 1), 0, OTHER, "m", "status_change", b"body", NOW)
        await enqueue(connection, others)
    return database, found


async def test_callbacks_of_all_states_are_listed_newest_first_and_filtered(
    filled: tuple[Database, Sequence[Callback]],
) -> None:
    database, found = filled

    async def chosen(choice: CallbackFilter) -> list[int]:
        return [seq for page in await callback_pages(database, choice) for seq in page]

    newest = list(reversed(found))
    pages = await callback_pages(database, CallbackFilter())
    assert [len(page) for page in pages] == [3] * 8
    assert [seq for page in pages for seq in page] == [row.seq for row in newest]
    for place, state in enumerate(("pending", "failing", "given up", "done")):
        assert await chosen(CallbackFilter(state=state)) == [row.seq for row in reversed(found[place::4])]
        mixed = CallbackFilter(state=state, recipient=(ANN, BEN)[place % 2], kind="inbound_message")
        expected = [row.seq for row in reversed(found[place::4]) if row.kind == "inbound_message"]
        assert await chosen(mixed) == expected
    assert await chosen(CallbackFilter(recipient=BEN)) == [row.seq for row in newest if row.recipient == BEN]
    assert await chosen(CallbackFilter(kind="status_change")) == [
        row.seq for row in newest if row.kind == "status_change"
    ]
    assert await chosen(CallbackFilter(since=NOW + 3000, until=NOW + 5000)) == [found[4].seq, found[3].seq]
    for row in found:
        assert await chosen(CallbackFilter(id=row.event_id)) == [row.seq]
    assert await chosen(CallbackFilter(id=found[3].event_id, state="given up")) == []
    assert await chosen(CallbackFilter(id="evt_" + "0" * 32)) == []
    assert await chosen(CallbackFilter(id="évt")) == []


async def test_the_entry_of_a_waiting_callback_has_its_next_attempt_and_last_error(
    filled: tuple[Database, Sequence[Callback]],
) -> None:
    database, _ = filled
    async with database.reading() as connection:
        page = await callback_views.list_callbacks(connection, ME, CallbackFilter(), limit=4)
        oldest = await callback_views.list_callbacks(connection, ME, CallbackFilter(until=NOW + 3500), limit=4)
    assert [row.state for row in oldest.rows] == ["done", "given up", "failing", "pending"]
    assert [row.state for row in page.rows] == ["done", "given up", "failing", "pending"]
    assert [row.next_attempt for row in oldest.rows] == [None, None, NOW + 99_000_000, NOW]
    assert [row.last_error for row in oldest.rows] == ["", "", "HTTP 500", ""]


async def test_the_callbacks_about_a_message_are_found_by_its_id(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    sent, received = an_id(NOW, "1"), an_id(NOW, "3")
    statuses = [callback(seq_at(NOW, place), sent, event=f"evt_{place:032}") for place in range(2)]
    cloud = callback(seq_at(NOW, 2), "cloud:" + sent, kind="cloud_status")
    inbound = callback(seq_at(NOW, 5), received, kind="inbound_message")
    waiting = callback(seq_at(NOW, 6), sent)
    async with database.transaction() as connection:
        await shards.create_shards(connection, 1)
        await end(connection, *statuses, cloud, inbound, callback(seq_at(NOW, 7), "another"))
        await enqueue(connection, waiting)

    async def about(name: str) -> list[int]:
        return sorted(seq for page in await callback_pages(database, CallbackFilter(id=name), 50) for seq in page)

    assert await about(sent) == [one.seq for one in (*statuses, cloud, waiting)]
    assert await about(received) == [inbound.seq]
    assert await about(an_id(NOW, "9")) == []


async def test_overlapping_segments_are_listed_in_the_order_of_their_callbacks(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    found = [callback(seq_at(NOW + 100 * place)) for place in range(300)]
    async with database.transaction() as connection:
        # Callbacks end 0 to 5 seconds later, in batches of three.
        late = sorted(range(300), key=lambda place: place + place * 7919 % 50)
        for start in range(0, 300, 3):
            await end(connection, *(found[place] for place in late[start : start + 3]))
    for limit in (7, 50, 1000):
        pages = await callback_pages(database, CallbackFilter(), limit)
        assert [seq for page in pages for seq in page] == [one.seq for one in reversed(found)]
        assert all(len(page) == limit for page in pages[:-1])
    pages = await callback_pages(database, CallbackFilter(since=NOW + 10_000, until=NOW + 20_000))
    assert [seq for page in pages for seq in page] == [one.seq for one in reversed(found[100:200])]


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


async def test_segments_are_deleted_by_pages_unless_they_ended_later(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    found = [callback(seq_at(NOW, place)) for place in range(6)]
    late = callback(seq_at(NOW - 1))
    async with database.transaction() as connection:
        for one in found:
            await end(connection, one)
        await callback_history.add(connection, [EndedAttempt(late, tried(late, at=NOW + 1))], as_it_is)
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
