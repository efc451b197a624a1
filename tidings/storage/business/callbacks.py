"""The callback queue: what is still to be posted to the webhook, and the dead-letter list."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, delete_listed, insert_or_ignore, insert_or_update, pages
from tidings.storage.rows import write_rows


class State(enum.IntEnum):
    """State of a callback."""

    PENDING = 0
    DEAD = 1


table = sa.Table(
    "callbacks",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("account", types.key(20), nullable=False),
    sa.Column("subject", types.key(64), nullable=False),
    sa.Column("kind", types.key(20), nullable=False),
    sa.Column("body", types.blob(), nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("due_at", types.milliseconds(), nullable=False),
    sa.Column("created_at", types.milliseconds(), nullable=False),
    sa.Column("last_error", types.text(255), nullable=False),
    sa.Column("request_id", types.key(64), nullable=False),
    # Null for what has none of its own, and for rows of releases before the column.
    sa.Column("event", types.key(64), nullable=True),
    sa.Index("callbacks_by_shard", "shard", "state", "seq"),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(slots=True)
class Callback:
    """One POST to the webhook.

    seq:     its place in the queue; grows within a shard, unique in the installation.
    subject: the message id; callbacks of one subject are delivered in order of `seq`.
    kind:    `inbound_message`, `status_change` or `contact_change`.
    body:    the JSON text as it is POSTed; of a row that was read: sealed, as it is stored.
    attempt: tries so far; due_at: not before (Unix milliseconds).
    request_id: of the request that the event goes back to; empty for none.
    event:   the event id, where it is derived from the event itself; empty where it is derived from `seq`.
    """

    seq: int
    shard: int
    account: str
    subject: str
    kind: str
    body: bytes
    created_at: int
    attempt: int = 0
    due_at: int = 0
    last_error: str = ""
    request_id: str = ""
    event: str = ""
    volatile: bool = False  # in memory only: `callback_persist` is off
    author: str = ""  # in memory only: void unless its subject is a message of this recipient; empty for always valid
    recipient: str = ""  # in memory only: whose message it is about, or whose doing; empty where that is not known
    traceparent: str = ""  # in memory only: of the trace that its message is in

    @property
    def event_id(self) -> str:
        """The same for every attempt at this event."""
        return event_id(self.seq, self.event)


def event_id(seq: int, event: str = "") -> str:
    """Of the callback with this `seq`. event: its own, empty for none."""
    return event or f"evt_{seq:x}"


def status_event(message_id: str, recipient: str, step: int) -> str:
    """The event id of a status: the same whenever, and on whatever copy of the database, the status is reached.

    recipient: the number, the group's id, or the participant of a group that the status is about.
    """
    name = f"{message_id} {recipient} {step}".encode()
    return f"evt_{hashlib.blake2b(name, digest_size=16).hexdigest()}"


_FINISH = table.delete().where(table.c.seq.in_(any_of("seqs")))


async def enqueue(connection: AsyncConnection, callbacks: Sequence[Callback], sealed: Sequence[bytes]) -> None:
    """Add callbacks; those that are there already stay as they are. sealed: their bodies as they are stored."""
    if callbacks:
        await write_rows(connection, insert_or_ignore(connection, table), _rows(callbacks, sealed, State.PENDING))


async def finish(connection: AsyncConnection, seqs: Sequence[int]) -> None:
    """Delete callbacks that the webhook acknowledged."""
    await delete_listed(connection, _FINISH, "seqs", seqs)


async def reschedule(connection: AsyncConnection, callbacks: Sequence[Callback], sealed: Sequence[bytes]) -> None:
    """Note failed attempts and when the next ones are due. sealed: as in `enqueue`."""
    if callbacks:
        statement = insert_or_update(connection, table, ("seq",), ("attempt", "due_at", "last_error"))
        await write_rows(connection, statement, _rows(callbacks, sealed, State.PENDING))


async def bury(connection: AsyncConnection, callbacks: Sequence[Callback], sealed: Sequence[bytes]) -> None:
    """Move callbacks to the dead-letter list. sealed: as in `enqueue`."""
    if callbacks:
        statement = insert_or_update(connection, table, ("seq",), ("state", "attempt", "last_error"))
        await write_rows(connection, statement, _rows(callbacks, sealed, State.DEAD))


def _rows(callbacks: Sequence[Callback], sealed: Sequence[bytes], state: State) -> list[dict[str, Any]]:
    return [_row(callback, body, state) for callback, body in zip(callbacks, sealed, strict=True)]


def _row(callback: Callback, sealed: bytes, state: State) -> dict[str, Any]:
    return {
        "seq": callback.seq,
        "shard": callback.shard,
        "account": callback.account,
        "subject": callback.subject,
        "kind": callback.kind,
        "body": sealed,
        "state": int(state),
        "attempt": callback.attempt,
        "due_at": callback.due_at,
        "created_at": callback.created_at,
        "last_error": callback.last_error[:255],
        "request_id": callback.request_id,
        "event": callback.event or None,
    }


_COLUMNS = (
    table.c.seq,
    table.c.shard,
    table.c.account,
    table.c.subject,
    table.c.kind,
    table.c.body,
    table.c.created_at,
    table.c.attempt,
    table.c.due_at,
    table.c.last_error,
    table.c.request_id,
    sa.func.coalesce(table.c.event, "").label("event"),
)


def _callback(row: sa.Row[*tuple[Any, ...]]) -> Callback:
    return Callback(**row._mapping)


async def list_pending(connection: AsyncConnection, shard: int, *, after: int, limit: int) -> Sequence[Callback]:
    """Pending callbacks of a shard with a `seq` above `after`, in order."""
    rows = await connection.execute(
        sa.select(*_COLUMNS)
        .where(table.c.shard == shard, table.c.state == int(State.PENDING), table.c.seq > after)
        .order_by(table.c.seq)
        .limit(limit)
    )
    return [_callback(row) for row in rows]


_REPLACE_BODY = table.update().where(table.c.seq == sa.bindparam("row")).values(body=sa.bindparam("sealed"))


async def list_unsealed(connection: AsyncConnection, shard: int, *, after: int, limit: int) -> Sequence[Callback]:
    """Callbacks of a shard, dead letters too, whose bodies are stored as they are POSTed. Reads all that there are."""
    rows = await connection.execute(
        sa.select(*_COLUMNS)
        .where(table.c.shard == shard, table.c.seq > after, sa.func.hex(sa.func.substr(table.c.body, 1, 1)) == "7B")
        .order_by(table.c.seq)
        .limit(limit)
    )
    return [_callback(row) for row in rows]


async def replace_bodies(connection: AsyncConnection, callbacks: Sequence[Callback], sealed: Sequence[bytes]) -> None:
    """Store other bodies for callbacks that are there. sealed: as in `enqueue`."""
    if callbacks:
        rows = [{"row": callback.seq, "sealed": body} for callback, body in zip(callbacks, sealed, strict=True)]
        await write_rows(connection, _REPLACE_BODY, rows)


async def count_pending(connection: AsyncConnection, shard: int, kinds: Collection[str] = ()) -> int:
    """How many callbacks of a shard wait, of these kinds, or of all."""
    question = (
        sa.select(sa.func.count()).select_from(table).where(table.c.shard == shard, table.c.state == int(State.PENDING))
    )
    if kinds:
        question = question.where(table.c.kind.in_(kinds))
    return int((await connection.execute(question)).scalar_one())


async def highest_seq(connection: AsyncConnection) -> int:
    """The highest `seq` in the table, 0 when it is empty."""
    return int((await connection.execute(sa.select(sa.func.max(table.c.seq)))).scalar_one() or 0)


async def list_dead(connection: AsyncConnection, *, after: int = 0, limit: int = 1000) -> Sequence[Callback]:
    """The dead-letter list in order of `seq`, a page at a time."""
    rows = await connection.execute(
        sa.select(*_COLUMNS)
        .where(table.c.state == int(State.DEAD), table.c.seq > after)
        .order_by(table.c.seq)
        .limit(limit)
    )
    return [_callback(row) for row in rows]


async def list_failing(connection: AsyncConnection, *, after: int = 0, limit: int = 1000) -> Sequence[Callback]:
    """Pending callbacks that failed at least once, in order of `seq`, a page at a time. Reads all that are pending."""
    rows = await connection.execute(
        sa.select(*_COLUMNS)
        .where(table.c.state == int(State.PENDING), table.c.attempt > 0, table.c.seq > after)
        .order_by(table.c.seq)
        .limit(limit)
    )
    return [_callback(row) for row in rows]


async def take_dead(
    connection: AsyncConnection, shard: int, now: int, seqs: Sequence[int] | None = None
) -> Sequence[Callback]:
    """Make dead letters of a shard pending again, all of them or those given, at most 1,000; returns them in order.

    Their age counts again from `now` (Unix milliseconds); their event ids stay.
    """
    query = sa.select(*_COLUMNS).where(table.c.shard == shard, table.c.state == int(State.DEAD))
    if seqs is not None:
        query = query.where(table.c.seq.in_(seqs[:1000]))
    rows = [_callback(row) for row in await connection.execute(query.order_by(table.c.seq).limit(1000))]
    if not rows:
        return []
    await connection.execute(
        table.update()
        .where(table.c.seq.in_([row.seq for row in rows]), table.c.state == int(State.DEAD))
        .values(state=int(State.PENDING), attempt=0, due_at=0, created_at=now, last_error="")
    )
    for row in rows:
        row.attempt, row.due_at, row.created_at, row.last_error = 0, 0, now, ""
    return rows


async def delete_dead_before(connection: AsyncConnection, shard: int, before: int, limit: int) -> int:
    """Forget dead letters of a shard that are of before `before` (Unix milliseconds), at most `limit`; how many."""
    query = (
        sa.select(table.c.seq)
        # A `seq` tells microseconds, with 5 bits behind them: only the old end of the index is read.
        .where(table.c.shard == shard, table.c.state == int(State.DEAD), table.c.seq < before * 1000 << 5)
        .where(table.c.created_at < before)
        .order_by(table.c.seq)
        .limit(limit)
    )
    seqs = [row[0] for row in await connection.execute(query)]
    for page in pages(seqs):
        await connection.execute(table.delete().where(table.c.seq.in_(page), table.c.state == int(State.DEAD)))
    return len(seqs)


async def list_events(connection: AsyncConnection, seqs: Sequence[int]) -> Mapping[int, str]:
    """The event ids of those of these callbacks that have one of their own, by `seq`."""
    found: dict[int, str] = {}
    for page in pages(seqs):
        query = sa.select(table.c.seq, table.c.event).where(table.c.seq.in_(page), table.c.event.is_not(None))
        found |= {row.seq: row.event for row in await connection.execute(query)}
    return found


async def list_seqs(connection: AsyncConnection, events: Sequence[str]) -> Sequence[int]:
    """The callbacks with these event ids of their own. Reads the whole table."""
    found: list[int] = []
    for page in pages(events):
        found += [row[0] for row in await connection.execute(sa.select(table.c.seq).where(table.c.event.in_(page)))]
    return found


async def hurry(connection: AsyncConnection, shard: int, seqs: Sequence[int]) -> Sequence[int]:
    """Have those of these callbacks of a shard that failed and come again be due now; which they are."""
    hurried: list[int] = []
    for page in pages(seqs):
        failing = (table.c.shard == shard, table.c.state == int(State.PENDING), table.c.attempt > 0)
        query = sa.select(table.c.seq).where(*failing, table.c.seq.in_(page)).order_by(table.c.seq)
        found = [row[0] for row in await connection.execute(query)]
        await connection.execute(table.update().where(*failing, table.c.seq.in_(found)).values(due_at=0))
        hurried += found
    return hurried


async def purge(connection: AsyncConnection, shard: int, seqs: Sequence[int]) -> int:
    """Delete callbacks of a shard, whatever became of them; how many there were."""
    deleted = 0
    for page in pages(seqs):
        query = sa.select(table.c.seq).where(table.c.shard == shard, table.c.seq.in_(page))
        found = [row[0] for row in await connection.execute(query)]
        await finish(connection, found)
        deleted += len(found)
    return deleted


async def list_waiting(connection: AsyncConnection, shard: int, seqs: Sequence[int]) -> Mapping[int, tuple[str, str]]:
    """Subject and kind of those of these callbacks that are pending, by `seq`."""
    waiting: dict[int, tuple[str, str]] = {}
    for page in pages(seqs):
        query = sa.select(table.c.seq, table.c.subject, table.c.kind).where(
            table.c.shard == shard, table.c.seq.in_(page), table.c.state == int(State.PENDING)
        )
        waiting |= {seq: (subject, kind) for seq, subject, kind in await connection.execute(query)}
    return waiting
