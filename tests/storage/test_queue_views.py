"""Jobs and callbacks as the operator selects and sees them, and the audit of deletions."""

from __future__ import annotations

import dataclasses

from tests.conftest import DatabaseFactory
from tidings.storage.business import callback_purges, callbacks, jobs, messages, queue_views
from tidings.storage.business.callback_purges import CallbackPurgeRow
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.jobs import Job
from tidings.storage.business.messages import MessageRow
from tidings.storage.business.queue_views import Depth, RowFilter
from tidings.storage.database import Connection

ME = "15550000000"


def callback(seq: int, *, shard: int = 0, subject: str = "", kind: str = "status_change") -> Callback:
    return Callback(seq, shard, ME, subject or f"m{seq}", kind, b"sealed", 1000 * seq, request_id=f"r{seq}")


async def fill(connection: Connection) -> None:
    """Insert callbacks: 1 pending, 2 failing, 3 dead, 4 pending in another shard and of another kind."""
    rows = [callback(1), callback(2), callback(3), callback(4, shard=3, kind="inbound_message")]
    await callbacks.enqueue(connection, rows, [b"sealed"] * 4)
    failing = dataclasses.replace(rows[1], attempt=2, due_at=99_000, last_error="HTTP 500")
    await callbacks.reschedule(connection, [failing], [b"sealed"])
    dead = dataclasses.replace(rows[2], attempt=9, last_error="HTTP 404")
    await callbacks.mark_dead(connection, [dead], [b"sealed"])
    await messages.add(
        connection,
        [MessageRow(f"m{n}", ME, 0, f"4917000000{n}", "text", 1, 1000, "") for n in (1, 2)],
    )
    await jobs.enqueue(
        connection,
        [
            Job("a", 0, ME, "491700000001", 0, "", b"sealed", 5000, "r"),
            Job("b", 3, ME, "491700000002", 1, "message", b"sealed", 7000),
        ],
    )


async def test_callbacks_are_filtered_by_status_time_recipient_shard_kind_and_event(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await fill(connection)

        async def chosen(choice: RowFilter, after: int = 0, limit: int = 10) -> list[int]:
            found = await queue_views.list_callbacks(connection, choice, after=after, limit=limit)
            return [row.seq for row in found]

        assert await chosen(RowFilter()) == [1, 2, 3, 4]
        assert await chosen(RowFilter(), after=1, limit=2) == [2, 3]
        assert await chosen(RowFilter(("pending",))) == [1, 4]
        assert await chosen(RowFilter(("failing", "dead"))) == [2, 3]
        assert await chosen(RowFilter(since=2000, until=4000)) == [2, 3]
        assert await chosen(RowFilter(recipient="49170000002")) == [2]
        assert await chosen(RowFilter(shard=3)) == [4]
        assert await chosen(RowFilter(number=ME, shard=3)) == [4]
        assert await chosen(RowFilter(number="15550000001")) == []
        assert await chosen(RowFilter(shard=0, kind="inbound_message")) == []
        assert await chosen(RowFilter(seqs=(1, 3, 77))) == [1, 3]
        (row,) = await queue_views.list_callbacks(connection, RowFilter(("failing",)))
        (unknown,) = await queue_views.list_callbacks(connection, RowFilter(("dead",)))
    assert dataclasses.asdict(row) == {
        "seq": 2,
        "shard": 0,
        "status": "failing",
        "kind": "status_change",
        "subject": "m2",
        "recipient": "49170000002",
        "attempt": 2,
        "created_at": 2000,
        "due_at": 99_000,
        "last_error": "HTTP 500",
        "request_id": "r2",
        "event": "",
    }
    assert row.event_id == "evt_2"
    assert (unknown.status, unknown.recipient) == ("dead", "")


async def test_jobs_are_filtered_and_both_queues_are_counted(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        assert await queue_views.depths(connection) == []
        await fill(connection)

        async def chosen(choice: RowFilter, after: str = "") -> list[str]:
            return [row.id for row in await queue_views.list_jobs(connection, choice, after=after)]

        assert await chosen(RowFilter()) == ["a", "b"]
        assert await chosen(RowFilter(), after="a") == ["b"]
        assert await chosen(RowFilter(("new",))) == ["a"]
        assert await chosen(RowFilter(("encrypted",), recipient="491700000002", shard=3, since=7000)) == ["b"]
        assert await chosen(RowFilter(until=5000)) == []
        depths = await queue_views.depths(connection)
    assert list(depths) == [
        Depth("jobs", 0, "new", 1, 5000),
        Depth("jobs", 3, "encrypted", 1, 7000),
        Depth("callbacks", 0, "dead", 1, 3000),
        Depth("callbacks", 0, "failing", 1, 2000),
        Depth("callbacks", 0, "pending", 1, 1000),
        Depth("callbacks", 3, "pending", 1, 4000),
    ]


async def test_callbacks_of_a_shard_are_retried_now_or_purged_by_seq(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        await fill(connection)
        assert await callbacks.make_due(connection, 0, [1, 2, 3, 4, 77]) == [2]
        (failing,) = await queue_views.list_callbacks(connection, RowFilter(("failing",)))
        assert failing.due_at == 0
        assert await callbacks.list_waiting(connection, 0, [1, 2, 3, 4]) == {
            1: ("m1", "status_change"),
            2: ("m2", "status_change"),
        }
        found = await queue_views.read_statuses(connection, 0, [1, 2, 3, 4, 77])
        assert found == {1: "pending", 2: "failing", 3: "dead"}
        assert queue_views.changed_since(found, ["dead", "failing"]) == {1}
        assert queue_views.changed_since(found, []) == set()
        assert await callbacks.purge(connection, 0, [2, 3, 4, 77]) == 2
        assert await callbacks.purge(connection, 0, []) == 0
        left = await queue_views.list_callbacks(connection, RowFilter())
    assert [row.seq for row in left] == [1, 4]


async def test_purges_are_recorded_listed_in_pages_and_deleted_when_expired(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    kept = [
        CallbackPurgeRow(100, 0, "ann@desk", "dead", 3),
        CallbackPurgeRow(100, 1, "ann@desk", "dead", 4),
        CallbackPurgeRow(200, 0, "ben", "x" * 300, 5),
    ]
    async with database.transaction() as connection:
        of_jobs = CallbackPurgeRow(100, 0, "ann@desk", "new", 9, callback_purges.JOBS)
        for purge in (*kept, CallbackPurgeRow(100, 0, "ann@desk", "dead", 2), of_jobs):
            await callback_purges.add(connection, purge)
        first = await callback_purges.list_after(connection, (0, -1), limit=2)
        rest = await callback_purges.list_after(connection, (first[-1].at, first[-1].shard))
        # Two pages of one purge within a millisecond.
        assert first == [dataclasses.replace(kept[0], deleted=5), kept[1]]
        assert rest == [dataclasses.replace(kept[2], choice="x" * 255)]
        assert await callback_purges.list_after(connection, (0, -1), queue=callback_purges.JOBS) == [of_jobs]
        assert [await callback_purges.delete_before(connection, 200, 1) for _ in range(3)] == [2, 1, 0]
        assert await callback_purges.list_after(connection, (0, -1), queue=callback_purges.JOBS) == []
        assert [entry.deleted for entry in await callback_purges.list_after(connection, (0, -1))] == [5]
