"""Lists of messages and callbacks: pages, filters and order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tests.storage.history_rows import ANN, BEN, ME, NOW, OTHER, an_id, callback, end, enqueue, message, seq_at
from tidings.storage.business import callback_views, callbacks, message_views, messages, shards
from tidings.storage.business.callback_views import CallbackFilter
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.message_views import MessageFilter
from tidings.storage.business.messages import Status
from tidings.storage.database import Connection, Database
from tidings.wire import ids


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


async def read_pages(
    database: Database, before: Any, read: Callable[[Connection, Any], Awaitable[Any]]
) -> list[Sequence[Any]]:
    """Return the rows of all pages.

    before: where the first page starts
    read: reads the page that starts there
    """
    found = []
    async with database.reading() as connection:
        while True:
            page = await read(connection, before)
            found.append(page.rows)
            if page.older is None:
                return found
            before = page.older


async def pages_of(database: Database, choice: MessageFilter, limit: int = 3) -> list[list[str]]:
    """Return the ids of all pages."""

    def read(connection: Connection, before: str) -> Awaitable[Any]:
        return message_views.list_messages(connection, ME, choice, before=before, limit=limit)

    return [[row.id for row in rows] for rows in await read_pages(database, "", read)]


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

    def read(connection: Connection, before: int | None) -> Awaitable[Any]:
        return callback_views.list_callbacks(connection, ME, choice, before=before, limit=limit)

    return [[row.seq for row in rows] for rows in await read_pages(database, None, read)]


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
        await callbacks.mark_dead(connection, found[2::4], [b"body"] * 6)
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


@pytest.mark.parametrize("event", ["", "evt_00112233445566778899aabbccddeeff"])
async def test_an_event_that_was_posted_again_before_is_listed_once_to_be_posted_again(
    database_factory: DatabaseFactory, event: str
) -> None:
    database = await database_factory("business")
    first = callback(seq_at(NOW), event=event)
    # The same event, as a replay of an accepted callback stores it.
    again = callback(seq_at(NOW, 1), event=first.event_id)
    async with database.transaction() as connection:
        await shards.create_shards(connection, 1)
        await end(connection, first)
        await end(connection, again)
        found = await callback_views.list_to_resend(connection, ME, CallbackFilter())
    assert found.seqs == {0: [again.seq]}
