"""Lists of messages, callbacks and processes for the console. Each reads a bounded part of an index.

Pages are ordered by key, newest first. A page with a filter checks at most `SCANNED` rows, so that it may have fewer
rows than requested although older ones match; `ListPage.older` then continues after the checked rows.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock
from tidings.storage.business import (
    callback_purges,
    callback_replays,
    callbacks,
    group_messages,
    messages,
    queue_views,
    webapp_nodes,
)
from tidings.storage.business.callbacks import CallbackState
from tidings.storage.business.queue_views import CallbackView

# Rows that one page with a filter checks at most.
SCANNED = 5_000

Row = TypeVar("Row")
Key = TypeVar("Key", int, str)


@dataclasses.dataclass(frozen=True, slots=True)
class ListPage(Generic[Row, Key]):
    """Page of a list."""

    rows: Sequence[Row]
    # Key before which the next page starts; `None` when this is the last page.
    older: Key | None


@dataclasses.dataclass(frozen=True, slots=True)
class MessageChoice:
    """Selection of a number's messages. Each field narrows it, unless it is empty or `None`."""

    # Number of the business.
    account: str
    # Ids between these two, both excluded.
    above: str
    below: str
    # Number, or group id.
    peer: str = ""
    # Type of the message.
    kind: str = ""
    # A `messages.Status`.
    status: int | None = None

    @property
    def is_filtered(self) -> bool:
        """Return whether more than a range of ids is selected."""
        return bool(self.peer or self.kind or self.status is not None)


@dataclasses.dataclass(frozen=True, slots=True)
class MessageEntry:
    """Message without its content. Fields are as in `messages.MessageRow`."""

    id: str
    shard: int
    peer: str
    kind: str
    status: int
    created_at: int
    category: str
    request_id: str
    # Whether its content is stored, sealed.
    has_content: bool


@dataclasses.dataclass(frozen=True, slots=True)
class CallbackChoice:
    """Selection of a number's callbacks. Each field narrows it, unless it is empty."""

    # Number of the business, and its shards.
    account: str
    shards: Sequence[int]
    # One of `queue_views.CALLBACK_STATUSES`.
    status: str = ""
    # Kind of callback.
    kind: str = ""
    # Message, as in `callbacks.Callback.subject` without a prefix.
    message: str = ""
    # Creation times, Unix milliseconds: earliest, and end, which is excluded; 0 for no limit.
    since: int = 0
    until: int = 0

    @property
    def is_filtered(self) -> bool:
        """Return whether an index does not suffice for the selection."""
        return bool(self.kind or self.message or self.status in (queue_views.FAILING, queue_views.PENDING))


@dataclasses.dataclass(frozen=True, slots=True)
class AuditEntry:
    """Replay or purge of callbacks in one shard."""

    # Unix milliseconds.
    at: int
    shard: int
    # User who requested it.
    by: str
    count: int
    # Selection of a purge; empty for a replay.
    choice: str = ""

    @property
    def is_purge(self) -> bool:
        return bool(self.choice)


@dataclasses.dataclass(frozen=True, slots=True)
class WebappEntry:
    """Recorded Webapp process, live or lost."""

    node: str
    # Seconds since its start, and since its last heartbeat.
    age: float
    heartbeat_age: float

    @property
    def is_live(self) -> bool:
        """Return whether the process sends heartbeats."""
        return self.heartbeat_age <= webapp_nodes.SILENCE


_MESSAGES, _CALLBACKS = messages.table, callbacks.table
_ENTRY = (
    _MESSAGES.c.id,
    _MESSAGES.c.shard,
    _MESSAGES.c.peer,
    _MESSAGES.c.kind,
    _MESSAGES.c.status,
    _MESSAGES.c.created_at,
    _MESSAGES.c.category,
    _MESSAGES.c.request_id,
    _MESSAGES.c.kept.is_not(None),
)


async def list_messages(
    connection: AsyncConnection, choice: MessageChoice, *, limit: int, scanned: int = SCANNED
) -> ListPage[MessageEntry, str]:
    """List messages by id, newest first."""
    columns = _MESSAGES.c
    within = [columns.id > choice.above, columns.id < choice.below]
    bound = None
    if choice.is_filtered:
        keys = sa.select(columns.id).where(*within).order_by(columns.id.desc())
        bound = (await connection.execute(keys.offset(scanned - 1).limit(1))).scalar()
    if bound is not None:
        within[0] = columns.id >= bound
    query = sa.select(*_ENTRY).where(*within, columns.account == choice.account).order_by(columns.id.desc())
    if choice.peer:
        query = query.where(columns.peer == choice.peer)
    if choice.kind:
        query = query.where(columns.kind == choice.kind)
    if choice.status is not None:
        query = query.where(columns.status == choice.status)
    rows = [_message_entry(row) for row in await connection.execute(query.limit(limit + 1))]
    return ListPage(rows[:limit], rows[limit - 1].id if len(rows) > limit else bound)


async def find_message(connection: AsyncConnection, account: str, message_id: str) -> MessageEntry | None:
    """Find one message of a number."""
    query = sa.select(*_ENTRY).where(_MESSAGES.c.id == message_id, _MESSAGES.c.account == account)
    row = (await connection.execute(query)).first()
    return _message_entry(row) if row is not None else None


def _message_entry(row: Any) -> MessageEntry:
    found = MessageEntry(*row)
    return dataclasses.replace(found, has_content=bool(found.has_content))


async def list_receipts(
    connection: AsyncConnection, message_id: str, *, after: str = "", limit: int
) -> Sequence[group_messages.GroupReceipt]:
    """List what participants have received of a message to a group, by participant."""
    table = group_messages.receipts
    query = sa.select(table).where(table.c.message_id == message_id, table.c.member > after)
    rows = await connection.execute(query.order_by(table.c.member).limit(limit))
    return [group_messages.GroupReceipt(*row) for row in rows]


async def list_callbacks(
    connection: AsyncConnection, choice: CallbackChoice, *, before: int, limit: int, scanned: int = SCANNED
) -> ListPage[CallbackView, int]:
    """List callbacks with a `seq` below `before`, newest first. Reads each shard's part of an index."""
    states = [int(CallbackState.DEAD)] if choice.status == queue_views.DEAD else [int(CallbackState.PENDING)]
    if not choice.status:
        states.append(int(CallbackState.DEAD))
    above = (choice.since * 1000 << 5) - 1 if choice.since else -1
    before = min(before, choice.until * 1000 << 5) if choice.until else before
    rows: list[CallbackView] = []
    bounds = []
    for shard in choice.shards:
        for state in states:
            part = _CallbackPart(shard, state, above, before)
            bound = await part.bound(connection, scanned // len(choice.shards)) if choice.is_filtered else None
            bounds += [bound] if bound is not None else []
            rows += await part.list(connection, choice, bound, limit + 1)
    # Rows of one part below the bound of another one belong to the next page.
    reached = max(bounds, default=-1)
    rows = sorted((row for row in rows if row.seq >= reached), key=lambda row: -row.seq)
    return ListPage(rows[:limit], rows[limit - 1].seq if len(rows) > limit else max(bounds, default=None))


@dataclasses.dataclass(frozen=True, slots=True)
class _CallbackPart:
    """Part of the index of callbacks: one state of one shard, with `seq` between two values, both excluded."""

    shard: int
    state: int
    above: int
    below: int

    def _within(self, bound: int | None) -> Sequence[sa.ColumnElement[bool]]:
        columns = _CALLBACKS.c
        lower = columns.seq > self.above if bound is None else columns.seq >= bound
        return columns.shard == self.shard, columns.state == self.state, lower, columns.seq < self.below

    async def bound(self, connection: AsyncConnection, scanned: int) -> int | None:
        """Return the `seq` of the last row to check; `None` when there are fewer rows."""
        seq = _CALLBACKS.c.seq
        query = sa.select(seq).where(*self._within(None)).order_by(seq.desc()).offset(max(scanned, 1) - 1).limit(1)
        found: int | None = (await connection.execute(query)).scalar()
        return found

    async def list(
        self, connection: AsyncConnection, choice: CallbackChoice, bound: int | None, limit: int
    ) -> Sequence[CallbackView]:
        columns = _CALLBACKS.c
        query = queue_views.select_callbacks().where(*self._within(bound), columns.account == choice.account)
        if choice.status in (queue_views.PENDING, queue_views.FAILING):
            is_failing = choice.status == queue_views.FAILING
            query = query.where(columns.attempt > 0 if is_failing else columns.attempt == 0)
        if choice.kind:
            query = query.where(columns.kind == choice.kind)
        if choice.message:
            query = query.where(columns.subject.in_([choice.message, callbacks.CLOUD_SUBJECT + choice.message]))
        rows: Any = await connection.execute(query.order_by(columns.seq.desc()).limit(limit))
        return [CallbackView(*row) for row in rows]


async def find_callback(connection: AsyncConnection, account: str, seq: int) -> CallbackView | None:
    """Find one callback of a number."""
    query = queue_views.select_callbacks().where(_CALLBACKS.c.seq == seq, _CALLBACKS.c.account == account)
    row: Any = (await connection.execute(query)).first()
    return CallbackView(*row) if row is not None else None


async def list_audit(connection: AsyncConnection, shards: Sequence[int], *, limit: int) -> Sequence[AuditEntry]:
    """List the latest replays and purges of callbacks in these shards, newest first.

    Replays of one user at one time in one shard are one entry. At most `SCANNED` replayed callbacks are read.
    """
    replays = callback_replays.table
    query = sa.select(replays.c.at, replays.c.shard, replays.c.by).where(replays.c.shard.in_(shards))
    found = await connection.execute(query.order_by(replays.c.at.desc()).limit(SCANNED))
    counted = collections.Counter((at, shard, by) for at, shard, by in found)
    entries = [AuditEntry(at, shard, by, count) for (at, shard, by), count in counted.items()]
    purges = await callback_purges.list_latest(connection, shards, limit)
    entries += [AuditEntry(row.at, row.shard, row.by, row.deleted, row.choice or "all") for row in purges]
    return sorted(entries, key=lambda entry: -entry.at)[:limit]


async def list_webapps(connection: AsyncConnection) -> Sequence[WebappEntry]:
    """List all recorded Webapps, by name."""
    columns = webapp_nodes.table.c
    now = database_clock.now(connection)
    query = sa.select(columns.node, now - columns.started_at, now - columns.heartbeat_at).order_by(columns.node)
    return [
        WebappEntry(node, float(age) / 1000, float(beat) / 1000) for node, age, beat in await connection.execute(query)
    ]
