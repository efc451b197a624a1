"""Lists of callbacks by account, newest first, and everything about one callback except its opened body.

A page merges ordered lists: that of the ended callbacks, read from one of its indexes, and one for each shard and state
of the callbacks in the queue. Selections for which no list exists read at most `EXAMINED` rows of a list per page, so
that a page may be short although more follow.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from tidings.storage.business import callback_history, callbacks, group_messages, messages, shards
from tidings.storage.business.callback_history import TOOK_BITS, Attempt
from tidings.storage.business.callbacks import CallbackState
from tidings.storage.business.messages import Status
from tidings.storage.database import Connection

PAGE = 50  # callbacks per page
EXAMINED = 5_000  # rows of one list that are read for a page

# States of callbacks: not tried yet; failed and waiting for the next attempt; given up; accepted by the webhook.
PENDING, FAILING, GIVEN_UP, DONE = "pending", "failing", "given up", "done"
STATES = (PENDING, FAILING, GIVEN_UP, DONE)

_EVENT_OF_SEQ = re.compile(r"evt_([0-9a-f]{1,16})", re.ASCII)
_STEPS = (Status.SENT, Status.DELIVERED, Status.READ, Status.FAILED)
_BEFORE_MS = 600_000  # difference of clocks between the sender of a message and us


@dataclasses.dataclass(frozen=True, slots=True)
class CallbackFilter:
    """Selection of callbacks. Each field narrows it, unless it is empty or zero."""

    # Number, or group id.
    recipient: str = ""
    # Event id, or id of a message.
    id: str = ""
    # Kind of the callback.
    kind: str = ""
    # One of `STATES`.
    state: str = ""
    # Earliest time of the event, Unix milliseconds.
    since: int = 0
    # End of these times, excluded, Unix milliseconds.
    until: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class CallbackEntry:
    """Callback without its body. Fields without a comment are as in `callbacks.Callback`."""

    seq: int
    shard: int
    # One of `STATES`.
    state: str
    kind: str
    subject: str
    # Peer that it is about; empty if unknown.
    recipient: str
    created_at: int
    request_id: str
    event: str
    # Number of attempts.
    attempt: int
    # Time of the next attempt, Unix milliseconds; None for none.
    next_attempt: int | None = None
    # Error of the last attempt; empty for none.
    last_error: str = ""
    # Of the attempt that was accepted: its start in Unix milliseconds, milliseconds, and HTTP status. None for others.
    tried_at: int | None = None
    took: int | None = None
    status: int | None = None

    @property
    def event_id(self) -> str:
        """Return the event id, which is the same for every attempt."""
        return callbacks.event_id(self.seq, self.event)

    @property
    def message_id(self) -> str:
        """Return the id of the message that it is about, or another subject."""
        return self.subject.removeprefix(callbacks.CLOUD_SUBJECT)


@dataclasses.dataclass(frozen=True, slots=True)
class CallbackPage:
    """Callbacks, newest first."""

    rows: Sequence[CallbackEntry]
    # `seq` to pass as `before` for the next page; None after the last page.
    older: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class CallbackRecord:
    """One callback with its body and its attempts."""

    entry: CallbackEntry
    # Sealed as in `callbacks.Callback`.
    body: bytes = dataclasses.field(repr=False)
    # Attempts that are kept, oldest first, with sealed responses.
    attempts: Sequence[Attempt]


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """Newest callbacks of one list that the filter selects."""

    rows: Sequence[CallbackEntry]
    # `seq` down to which the list was read; 0 if it was read as far as the page needs.
    floor: int = 0


async def list_callbacks(
    connection: Connection,
    account: str,
    choice: CallbackFilter,
    *,
    block: int = 0,
    before: int | None = None,
    limit: int = PAGE,
) -> CallbackPage:
    """List a page of the callbacks of an account, newest first.

    block: shard block of the account
    before: `seq` after which the page starts, `CallbackPage.older` of the previous one; None for the first page
    """
    low = choice.since * 1000 << 5
    high = min(choice.until * 1000 << 5 if choice.until else 2**63 - 1, before if before is not None else 2**63 - 1)
    reader = _Reader(connection, account, choice, low=low, high=high, limit=limit)
    if choice.id:
        parts = [await reader.named_done(), *await reader.waiting(block)]
    else:
        parts = [*([await reader.done()] if choice.state in ("", DONE) else []), *await reader.waiting(block)]
    floor = max((part.floor for part in parts), default=0)
    rows = sorted((row for part in parts for row in part.rows if row.seq >= floor), key=lambda row: row.seq, reverse=True)
    if len(rows) > limit:
        return CallbackPage(rows[:limit], rows[limit - 1].seq)
    return CallbackPage(rows, floor or None)


_H, _W = callback_history.table.c, callbacks.table.c
_HISTORY = (
    _H.seq,
    _H.shard,
    _H.kind,
    _H.subject,
    _H.recipient,
    _H.created_at,
    _H.request_id,
    _H.event,
    _H.attempt,
    _H.tried,
    _H.status,
)
_WAITING = (
    _W.seq,
    _W.shard,
    _W.kind,
    _W.subject,
    _W.recipient,
    _W.created_at,
    _W.request_id,
    _W.event,
    _W.attempt,
    _W.state,
    _W.due_at,
    _W.last_error,
)


def _done(row: Any) -> CallbackEntry:
    return CallbackEntry(
        row.seq,
        row.shard,
        DONE,
        row.kind,
        row.subject,
        row.recipient or "",
        row.created_at,
        row.request_id,
        row.event or "",
        row.attempt,
        tried_at=row.tried >> TOOK_BITS,
        took=row.tried & 2**TOOK_BITS - 1,
        status=row.status,
    )


def _queued(row: Any) -> CallbackEntry:
    is_dead = row.state == CallbackState.DEAD
    return CallbackEntry(
        row.seq,
        row.shard,
        GIVEN_UP if is_dead else FAILING if row.attempt else PENDING,
        row.kind,
        row.subject,
        row.recipient or "",
        row.created_at,
        row.request_id,
        row.event or "",
        row.attempt,
        next_attempt=None if is_dead else row.due_at or row.created_at,
        last_error=row.last_error,
    )


def seq_of(event_id: str) -> int | None:
    """Return the `seq` from which an event id was derived; None for one that was derived from its event."""
    found = _EVENT_OF_SEQ.fullmatch(event_id)
    seq = int(found[1], 16) if found is not None else 0
    return seq if 0 < seq < 2**63 else None


class _Reader:
    """Reads the lists of one page."""

    def __init__(
        self, connection: Connection, account: str, choice: CallbackFilter, *, low: int, high: int, limit: int
    ) -> None:
        """low, high: range of `seq`, the end excluded"""
        self._connection = connection
        self._account = account
        self._choice = choice
        self._low, self._high = low, high
        self._limit = limit + 1

    async def done(self) -> _Part:
        """Read the ended callbacks of a selection without an id."""
        choice = self._choice
        query = sa.select(*_HISTORY).where(_H.account == self._account)
        index = "PRIMARY"
        if choice.recipient:
            query, index = query.where(_H.recipient == choice.recipient), "callback_history_by_peer"
        elif choice.kind:
            query, index = query.where(_H.kind == choice.kind), "callback_history_by_kind"
        is_listed = not (choice.recipient and choice.kind)
        return await self._part(query, callback_history.table, index, _done, is_listed=is_listed)

    async def named_done(self) -> _Part:
        """Read the ended callbacks with the id of the selection, all at once."""
        name = self._choice.id
        query = sa.select(*_HISTORY).where(_H.account == self._account, _H.seq >= self._low, _H.seq < self._high)
        if (seq := seq_of(name)) is not None:
            found = await self._connection.execute(query.where(_H.seq == seq))
        elif name.startswith("evt_"):
            found = await self._connection.execute(query.where(_H.event == name))
        else:
            found = await self._connection.execute(await self._about(query, name))
        rows = [row for row in map(_done, found) if self._selects(row)]
        return _Part(rows if self._choice.state in ("", DONE) else [])

    async def _about(self, query: sa.Select[Any], message_id: str) -> sa.Select[Any]:
        """Return the query for the ended callbacks about a message."""
        table = messages.table.c
        of_message = sa.select(table.peer, table.status, table.created_at)
        message = (
            await self._connection.execute(of_message.where(table.account == self._account, table.id == message_id))
        ).first()
        subjects = (message_id, callbacks.CLOUD_SUBJECT + message_id)
        if message is None:
            return query.where(sa.false())
        if message.status in (Status.RECEIVED, Status.MARKED_READ):
            since = max(0, message.created_at - _BEFORE_MS) * 1000 << 5
            of_peer = query.where(_H.recipient == message.peer, _H.seq >= since).order_by(_H.seq).limit(EXAMINED)
            nearest = _hinted(of_peer, callback_history.table, "callback_history_by_peer").subquery()
            return sa.select(nearest).where(nearest.c.subject.in_(subjects))
        # Event ids of statuses follow from the message, the recipient and the status.
        receipts = group_messages.receipts.c
        members = await self._connection.execute(sa.select(receipts.member).where(receipts.message_id == message_id))
        events = [
            callbacks.status_event(subject, recipient, int(step))
            for subject in subjects
            for recipient in (message.peer, *(row.member for row in members))
            for step in _STEPS
        ]
        return query.where(_H.event.in_(events))

    async def waiting(self, block: int) -> list[_Part]:
        """Read the callbacks in the queue, and those given up."""
        choice = self._choice
        states = {PENDING: (CallbackState.PENDING,), FAILING: (CallbackState.PENDING,), GIVEN_UP: (CallbackState.DEAD,)}
        wanted = states.get(choice.state, tuple(CallbackState) if not choice.state else ())
        if not wanted:
            return []
        owned = await self._connection.execute(sa.select(shards.table.c.shard).where(shards.of_block(block)))
        is_listed = not (choice.recipient or choice.id or choice.kind or choice.state in (PENDING, FAILING))
        return [
            await self._part(
                sa.select(*_WAITING).where(_W.shard == row.shard, _W.state == int(state), _W.account == self._account),
                callbacks.table,
                "callbacks_by_shard",
                _queued,
                is_listed=is_listed,
            )
            for row in list(owned)
            for state in wanted
        ]

    async def _part(
        self,
        query: sa.Select[Any],
        table: sa.Table,
        index: str,
        entry: Callable[[Any], CallbackEntry],
        *,
        is_listed: bool,
    ) -> _Part:
        """Read a list.

        is_listed: whether the filter selects all rows of the list
        """
        size = self._limit if is_listed else EXAMINED
        ordered = query.where(table.c.seq >= self._low, table.c.seq < self._high).order_by(table.c.seq.desc())
        found = [entry(row) for row in await self._connection.execute(_hinted(ordered.limit(size), table, index))]
        rows = found if is_listed else [row for row in found if self._selects(row)]
        if len(rows) >= self._limit or len(found) < size:
            return _Part(rows[: self._limit])
        return _Part(rows, found[-1].seq)

    def _selects(self, row: CallbackEntry) -> bool:
        choice = self._choice
        return (
            choice.recipient in ("", row.recipient)
            and choice.kind in ("", row.kind)
            and choice.state in ("", row.state)
            and choice.id in ("", row.event_id, row.message_id)
        )


def _hinted(query: sa.Select[Any], table: sa.Table, index: str) -> sa.Select[Any]:
    for dialect in ("mysql", "mariadb"):
        query = query.with_hint(table, f"FORCE INDEX ({index})", dialect)
    return query


async def read_callback(connection: Connection, account: str, seq: int) -> CallbackRecord | None:
    """Return one callback of an account, in whatever state; None if there is none."""
    query: sa.Select[Any] = sa.select(*_HISTORY, _H.body).where(_H.account == account, _H.seq == seq)
    row: Any = (await connection.execute(query)).first()
    entry = _done(row) if row is not None else None
    if row is None:
        query = sa.select(*_WAITING, _W.body).where(_W.account == account, _W.seq == seq)
        row = (await connection.execute(query)).first()
        entry = _queued(row) if row is not None else None
    if entry is None:
        return None
    table = callback_history.attempts
    found = await connection.execute(sa.select(table).where(table.c.account == account, table.c.seq == seq))
    attempts = [Attempt(*one) for one in found]
    if entry.tried_at is not None and all(one.at != entry.tried_at for one in attempts):
        # The accepted attempt has a row of its own only if its response had content.
        last = Attempt(account, seq, entry.attempt % 20, entry.attempt, entry.tried_at, entry.took or 0, entry.status, "", None)
        attempts.append(last)
    return CallbackRecord(entry, row.body, sorted(attempts, key=lambda one: one.at))


def headers_of(entry: CallbackEntry, attempt: Attempt) -> Mapping[str, str]:
    """Return the headers of an attempt, in the order in which they were sent, without those that contain a secret or are
    made from one: `Host`, `Authorization` and the signatures.
    """
    is_cloud = entry.kind in callbacks.CLOUD_KINDS
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "facebookexternalua" if is_cloud else "tidings",
        "webhook-id": entry.event_id,
    }
    if not is_cloud:
        headers["webhook-timestamp"] = str(math.floor(attempt.at / 1000))
    if entry.request_id:
        headers["X-Request-ID"] = entry.request_id
    return headers


@dataclasses.dataclass(frozen=True, slots=True)
class ResendPage:
    """Callbacks that are to be posted again."""

    seqs: Mapping[int, Sequence[int]]  # by the shard whose owner posts them
    # As in `CallbackPage`.
    older: int | None


async def list_to_resend(
    connection: Connection,
    account: str,
    choice: CallbackFilter,
    *,
    block: int = 0,
    before: int | None = None,
    limit: int = 1000,
) -> ResendPage:
    """List a page of the given up, failing and ended callbacks that a filter selects, newest first.

    The caller passes `choice.until`, or the callbacks that a page caused would be selected by a later call without
    `before`. The other parameters are those of `list_callbacks`.
    """
    page = await list_callbacks(connection, account, choice, block=block, before=before, limit=limit)
    rows = await connection.execute(sa.select(shards.table.c.shard).where(shards.of_block(block)))
    present = {row.shard for row in rows}
    seqs: dict[int, list[int]] = {}
    for row in page.rows:
        if row.state != PENDING and present:
            # Any shard posts ended callbacks again. That of an earlier layout may be gone.
            seqs.setdefault(row.shard if row.shard in present else min(present), []).append(row.seq)
    return ResendPage(seqs, page.older)
