"""Callback queue: callbacks that have not been acknowledged by the webhook, and dead letters."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.cloud_users import CloudUser
from tidings.storage.business.tables import metadata
from tidings.storage.database import (
    any_of,
    delete_listed,
    execute_paged,
    insert_or_ignore,
    insert_or_update,
    pages,
    select_paged,
)
from tidings.storage.rows import write_rows

CLOUD_MESSAGE, CLOUD_STATUS, CLOUD_ERROR, CLOUD_ACCOUNT = (
    "cloud_message",
    "cloud_status",
    "cloud_error",
    "cloud_account",
)
CLOUD_KINDS = frozenset((CLOUD_MESSAGE, CLOUD_STATUS, CLOUD_ERROR, CLOUD_ACCOUNT))
"""Kinds of callbacks whose bodies have the format of the Cloud API. All others have that of v1."""

# `User-Agent` of the posts of both formats.
USER_AGENT, CLOUD_USER_AGENT = "tidings", "facebookexternalua"

CLOUD_SUBJECT = "cloud:"  # prefix of the subjects of `CLOUD_KINDS`, before a message id


class CallbackState(enum.IntEnum):
    """State of a callback."""

    PENDING = 0
    DEAD = 1


table = metadata.table(
    "callbacks",
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
    # Own event id; NULL if the callback has none, and in rows of releases without this column.
    sa.Column("event", types.key(64), nullable=True),
    # Peer that it is about; NULL if unknown, and in rows of releases without this column.
    sa.Column("recipient", types.key(40), nullable=True),
    sa.Index("callbacks_by_shard", "shard", "state", "seq"),
)

# Message that a callback is about.
MESSAGE_ID = sa.case(
    (table.c.subject.like(f"{CLOUD_SUBJECT}%"), sa.func.substr(table.c.subject, len(CLOUD_SUBJECT) + 1)),
    else_=table.c.subject,
)


@dataclasses.dataclass(slots=True)
class Callback:
    """One POST to the webhook."""

    # Position in the queue. Increases within a shard; unique in the installation.
    seq: int
    shard: int
    account: str
    # Id of the message, or `contacts:…` for a contact change. Callbacks of one subject are delivered in order of `seq`.
    subject: str
    # "inbound_message", "status_change" or "contact_change", or one of `CLOUD_KINDS`.
    kind: str
    # JSON text that is POSTed. In a callback read from the table: the sealed text.
    body: bytes
    # Unix milliseconds.
    created_at: int
    # Number of attempts so far.
    attempt: int = 0
    # Unix milliseconds before which no attempt is made.
    due_at: int = 0
    last_error: str = ""
    # Id of the request that caused the event; empty for none.
    request_id: str = ""
    # Own event id, derived from the event; empty if the event id is derived from `seq`.
    event: str = ""
    volatile: bool = False  # in memory only: True if `callback_persist` is off
    author: str = ""  # in memory only: valid only if the subject is a message of this recipient; empty: always valid
    recipient: str = ""  # peer whose message it is about, or who caused it; empty if unknown
    traceparent: str = ""  # in memory only: trace context of its message
    alone: bool = False  # in memory only: never posted together with others
    since: float = -math.inf  # in memory only: monotonic time of the event, seconds; set by the queue or its loader
    blank: bool = False  # in memory only: void unless it is filled during its commit
    users: Sequence[CloudUser] = ()  # in memory only: users whose ids it names, to be stored with it

    def delay(self, due_at: int) -> None:
        """Make no attempt before `due_at`, Unix milliseconds, from which its age counts; 0 for no delay."""
        self.due_at = due_at
        self.created_at = max(self.created_at, due_at)

    def fill(self, content: Callback) -> None:
        """Take everything of `content` but its position in the queue."""
        for field in dataclasses.fields(self):
            if field.name != "seq":
                setattr(self, field.name, getattr(content, field.name))

    @property
    def is_cloud(self) -> bool:
        """Return whether the body has the format of the Cloud API."""
        return self.kind in CLOUD_KINDS

    @property
    def event_id(self) -> str:
        """Return the event id, which is the same for every attempt."""
        return self.event or event_id(self.seq)


def event_id(seq: int, event: str = "") -> str:
    """Return the event id of the callback with this `seq`, given its own one or an empty string."""
    return event or f"evt_{seq:x}"


def event_of(name: bytes) -> str:
    """Return the event id of an event with this name. It is the same on every copy of the database and at any time."""
    return f"evt_{hashlib.blake2b(name, digest_size=16).hexdigest()}"


def status_event(message_id: str, recipient: str, step: int) -> str:
    """Return the event id of a status.

    recipient: number, group id, or participant of a group that the status is about
    """
    return event_of(f"{message_id} {recipient} {step}".encode())


_FINISH = table.delete().where(table.c.seq.in_(any_of("seqs")))


async def enqueue(connection: AsyncConnection, callbacks: Sequence[Callback], sealed: Sequence[bytes]) -> None:
    """Add callbacks; existing ones stay unchanged. `sealed` are their bodies as they are stored."""
    # Several shards commit together. In the order of keys the table grows at its end, and no page is split.
    rows = sorted(_rows(callbacks, sealed, CallbackState.PENDING), key=itemgetter("seq"))
    await write_rows(connection, insert_or_ignore(connection, table), rows)


async def finish(connection: AsyncConnection, seqs: Sequence[int]) -> None:
    """Delete callbacks that the webhook has acknowledged."""
    await delete_listed(connection, _FINISH, "seqs", seqs)


async def reschedule(connection: AsyncConnection, callbacks: Sequence[Callback], sealed: Sequence[bytes]) -> None:
    """Record failed attempts and the times at which the next ones are due. `sealed` is as in `enqueue`."""
    statement = insert_or_update(connection, table, ("attempt", "due_at", "last_error"))
    await write_rows(connection, statement, _rows(callbacks, sealed, CallbackState.PENDING))


async def mark_dead(connection: AsyncConnection, callbacks: Sequence[Callback], sealed: Sequence[bytes]) -> None:
    """Make callbacks dead letters. `sealed` is as in `enqueue`."""
    statement = insert_or_update(connection, table, ("state", "attempt", "last_error"))
    await write_rows(connection, statement, _rows(callbacks, sealed, CallbackState.DEAD))


def _rows(callbacks: Sequence[Callback], sealed: Sequence[bytes], state: CallbackState) -> list[dict[str, Any]]:
    return [_row(callback, body, state) for callback, body in zip(callbacks, sealed, strict=True)]


def _row(callback: Callback, sealed: bytes, state: CallbackState) -> dict[str, Any]:
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
        "recipient": callback.recipient or None,
    }


_COLUMNS = (
    *(column for column in table.c if column.name not in ("state", "event", "recipient")),
    sa.func.coalesce(table.c.event, "").label("event"),
    sa.func.coalesce(table.c.recipient, "").label("recipient"),
)


def _callback(row: sa.Row[*tuple[Any, ...]]) -> Callback:
    return Callback(**row._mapping)


async def list_pending(connection: AsyncConnection, shard: int, *, after: int, limit: int) -> Sequence[Callback]:
    """List pending callbacks of a shard with a `seq` above `after`, in order."""
    rows = await connection.execute(
        sa.select(*_COLUMNS)
        .where(table.c.shard == shard, table.c.state == int(CallbackState.PENDING), table.c.seq > after)
        .order_by(table.c.seq)
        .limit(limit)
    )
    return [_callback(row) for row in rows]


_REPLACE_BODY = table.update().where(table.c.seq == sa.bindparam("row")).values(body=sa.bindparam("sealed"))


async def list_unsealed(connection: AsyncConnection, shard: int, *, after: int, limit: int) -> Sequence[Callback]:
    """List callbacks of a shard, including dead letters, whose bodies are not sealed. Reads all callbacks."""
    rows = await connection.execute(
        sa.select(*_COLUMNS)
        .where(table.c.shard == shard, table.c.seq > after, sa.func.hex(sa.func.substr(table.c.body, 1, 1)) == "7B")
        .order_by(table.c.seq)
        .limit(limit)
    )
    return [_callback(row) for row in rows]


async def replace_bodies(connection: AsyncConnection, callbacks: Sequence[Callback], sealed: Sequence[bytes]) -> None:
    """Replace the bodies of existing callbacks. `sealed` is as in `enqueue`."""
    rows = [{"row": callback.seq, "sealed": body} for callback, body in zip(callbacks, sealed, strict=True)]
    await write_rows(connection, _REPLACE_BODY, rows)


async def count_pending(connection: AsyncConnection, shard: int, kinds: Collection[str] = ()) -> int:
    """Count the pending callbacks of a shard, of the given kinds or of all kinds."""
    statement = (
        sa.select(sa.func.count())
        .select_from(table)
        .where(table.c.shard == shard, table.c.state == int(CallbackState.PENDING))
    )
    if kinds:
        statement = statement.where(table.c.kind.in_(kinds))
    return int((await connection.execute(statement)).scalar_one())


async def highest_seq(connection: AsyncConnection) -> int:
    """Return the highest `seq` in the table, 0 when it is empty."""
    return int((await connection.execute(sa.select(sa.func.max(table.c.seq)))).scalar_one() or 0)


async def list_dead(connection: AsyncConnection, *, after: int = 0, limit: int = 1000) -> Sequence[Callback]:
    """List one page of dead letters, in the order of `seq`."""
    rows = await connection.execute(
        sa.select(*_COLUMNS)
        .where(table.c.state == int(CallbackState.DEAD), table.c.seq > after)
        .order_by(table.c.seq)
        .limit(limit)
    )
    return [_callback(row) for row in rows]


async def list_failing(connection: AsyncConnection, *, after: int = 0, limit: int = 1000) -> Sequence[Callback]:
    """List one page of pending callbacks that failed at least once, by `seq`. Reads all pending callbacks."""
    rows = await connection.execute(
        sa.select(*_COLUMNS)
        .where(table.c.state == int(CallbackState.PENDING), table.c.attempt > 0, table.c.seq > after)
        .order_by(table.c.seq)
        .limit(limit)
    )
    return [_callback(row) for row in rows]


async def take_dead(
    connection: AsyncConnection, shard: int, now: int, seqs: Sequence[int] | None = None
) -> Sequence[Callback]:
    """Make dead letters of a shard pending again, all of them or those given, at most 1,000. Returns them in order.

    Their age counts again from `now` (Unix milliseconds). Their event ids stay the same.
    """
    query = sa.select(*_COLUMNS).where(table.c.shard == shard, table.c.state == int(CallbackState.DEAD))
    if seqs is not None:
        query = query.where(table.c.seq.in_(seqs[:1000]))
    rows = [_callback(row) for row in await connection.execute(query.order_by(table.c.seq).limit(1000))]
    if not rows:
        return []
    await connection.execute(
        table.update()
        .where(table.c.seq.in_([row.seq for row in rows]), table.c.state == int(CallbackState.DEAD))
        .values(state=int(CallbackState.PENDING), attempt=0, due_at=0, created_at=now, last_error="")
    )
    for row in rows:
        row.attempt, row.due_at, row.created_at, row.last_error = 0, 0, now, ""
    return rows


async def delete_dead_before(connection: AsyncConnection, shard: int, before: int, limit: int) -> int:
    """Delete at most `limit` dead letters of a shard made before `before` (Unix milliseconds). Returns the number."""
    query = (
        sa.select(table.c.seq)
        # A `seq` is a time in microseconds followed by 5 bits, so only the old end of the index is read.
        .where(table.c.shard == shard, table.c.state == int(CallbackState.DEAD), table.c.seq < before * 1000 << 5)
        .where(table.c.created_at < before)
        .order_by(table.c.seq)
        .limit(limit)
    )
    seqs = [row[0] for row in await connection.execute(query)]
    delete = table.delete().where(table.c.seq.in_(any_of("seqs")), table.c.state == int(CallbackState.DEAD))
    await execute_paged(connection, delete, "seqs", seqs)
    return len(seqs)


async def list_events(connection: AsyncConnection, seqs: Sequence[int]) -> Mapping[int, str]:
    """Return the own event ids of those of the given callbacks that have one, by `seq`."""
    query = sa.select(table.c.seq, table.c.event).where(table.c.seq.in_(any_of("seqs")), table.c.event.is_not(None))
    return {row.seq: row.event for row in await select_paged(connection, query, "seqs", seqs)}


async def make_due(connection: AsyncConnection, shard: int, seqs: Sequence[int]) -> Sequence[int]:
    """Make those of the given callbacks of a shard due now that have failed and are pending. Returns their `seq`s."""
    due: list[int] = []
    for page in pages(seqs):
        failing = (table.c.shard == shard, table.c.state == int(CallbackState.PENDING), table.c.attempt > 0)
        query = sa.select(table.c.seq).where(*failing, table.c.seq.in_(page)).order_by(table.c.seq)
        found = [row[0] for row in await connection.execute(query)]
        await connection.execute(table.update().where(*failing, table.c.seq.in_(found)).values(due_at=0))
        due += found
    return due


async def purge(connection: AsyncConnection, shard: int, seqs: Sequence[int]) -> int:
    """Delete callbacks of a shard, whatever their state. Returns the number deleted."""
    deleted = 0
    for page in pages(seqs):
        query = sa.select(table.c.seq).where(table.c.shard == shard, table.c.seq.in_(page))
        found = [row[0] for row in await connection.execute(query)]
        await finish(connection, found)
        deleted += len(found)
    return deleted


async def list_waiting(connection: AsyncConnection, shard: int, seqs: Sequence[int]) -> Mapping[int, tuple[str, str]]:
    """Return subject and kind of those of the given callbacks that are pending, by `seq`."""
    query = sa.select(table.c.seq, table.c.subject, table.c.kind).where(
        table.c.shard == shard, table.c.seq.in_(any_of("seqs")), table.c.state == int(CallbackState.PENDING)
    )
    return {seq: (subject, kind) for seq, subject, kind in await select_paged(connection, query, "seqs", seqs)}
