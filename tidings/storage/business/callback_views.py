"""Lists of callbacks by account, newest first, and everything about one callback except its opened body.

A page merges ordered lists: that of the ended callbacks, and one for each shard and state of those in the queue. Ended
callbacks are found by the fingerprints of their segments, of which a page searches `SEARCHED`. Other selections read
some `EXAMINED` rows of all lists per page. So a page may be short although more follow.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from tidings.storage.business import callback_history, callbacks, shards
from tidings.storage.business.callback_history import SPAN, Attempt, EndedCallback, StoredCallback
from tidings.storage.business.callbacks import CallbackState
from tidings.storage.database import Connection

PAGE = 50  # callbacks per page
EXAMINED = 5_000  # callbacks in the queue, and ended ones, that are read for a page
SEARCHED = 20_000  # segments whose fingerprints are searched for a page
SEGMENTS = 64  # segments of one query
FIRST_SEGMENTS = 4  # segments of the first query for a page without a filter

# States of callbacks: not tried yet; failed and waiting for the next attempt; given up; accepted by the webhook.
PENDING, FAILING, GIVEN_UP, DONE = "pending", "failing", "given up", "done"
STATES = (PENDING, FAILING, GIVEN_UP, DONE)

_EVENT_OF_SEQ = re.compile(r"evt_([0-9a-f]{1,16})", re.ASCII)


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
    # Sealed as in `callbacks.Callback`; None for an ended callback.
    body: bytes | None = dataclasses.field(repr=False)
    # Texts of an ended callback, with its entry; None for others.
    ended: StoredCallback | None = dataclasses.field(repr=False)
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
    shard: int | None = None,
    before: int | None = None,
    limit: int = PAGE,
) -> CallbackPage:
    """List a page of the callbacks of an account, newest first.

    block: shard block of the account
    shard: the only one whose callbacks in the queue are read; None for all of the block
    before: `seq` after which the page starts, `CallbackPage.older` of the previous one; None for the first page
    """
    low = choice.since * 1000 << 5
    high = min(choice.until * 1000 << 5 if choice.until else 2**63 - 1, before if before is not None else 2**63 - 1)
    reader = _Reader(connection, account, choice, low=low, high=high, limit=limit)
    is_done = choice.state in ("", DONE)
    parts = [*([await reader.done()] if is_done else []), *await reader.waiting(block, shard)]
    floor = max((part.floor for part in parts), default=0)
    rows = _newest([row for part in parts for row in part.rows if row.seq >= floor])
    if len(rows) > limit:
        return CallbackPage(rows[:limit], rows[limit - 1].seq)
    return CallbackPage(rows, floor or None)


_W = callbacks.table.c
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


def _newest(rows: Sequence[CallbackEntry]) -> list[CallbackEntry]:
    """Return callbacks, newest first."""
    return sorted(rows, key=lambda row: row.seq, reverse=True)


def _done(row: EndedCallback) -> CallbackEntry:
    return CallbackEntry(
        row.seq,
        row.shard,
        DONE,
        row.kind,
        row.subject,
        row.recipient,
        row.created_at,
        row.request_id,
        row.event,
        row.attempt,
        tried_at=row.at,
        took=row.took,
        status=row.status,
    )


def _queued(row: Any) -> CallbackEntry:
    is_dead = row.state == CallbackState.DEAD
    state = FAILING if row.attempt else PENDING
    if is_dead:
        state = GIVEN_UP
    return CallbackEntry(
        row.seq,
        row.shard,
        state,
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
        """Read the ended callbacks."""
        choice, name = self._choice, self._choice.id
        if (seq := seq_of(name)) is not None:
            # Its segment is one of few.
            stored = await callback_history.find(self._connection, self._account, seq)
            named = [_done(stored.entry)] if stored is not None else []
            return _Part([row for row in named if self._selects(row) and self._low <= row.seq < self._high])
        values = [value for value in (name, choice.recipient, choice.kind) if value]
        low = self._low
        if values:
            low = await callback_history.find_floor(
                self._connection, self._account, low=low, high=self._high, count=SEARCHED
            )
        before, examined, rows = self._high + SPAN, 0, list[CallbackEntry]()
        # The newest few segments fill a page without a filter.
        count = SEGMENTS if values else FIRST_SEGMENTS
        while True:
            found = await callback_history.list_segments(
                self._connection,
                self._account,
                low=low,
                high=self._high,
                before=before,
                values=values,
                limit=count,
            )
            for segment in found:
                examined += len(segment.entries)
                rows += [
                    row
                    for row in map(_done, segment.entries)
                    if self._low <= row.seq < self._high and self._selects(row)
                ]
            if len(found) < count:
                return _Part(_newest(rows)[: self._limit], low if low > self._low else 0)
            # Segments that were not read end before this.
            before = found[-1].last_seq
            if sum(row.seq > before for row in rows) >= self._limit:
                return _Part(_newest(rows)[: self._limit])
            if examined >= EXAMINED and before < self._high:
                return _Part(rows, before)
            count = min(SEGMENTS, 2 * count)

    async def waiting(self, block: int, shard: int | None) -> list[_Part]:
        """Read the callbacks in the queue, and those given up, of one shard, or for None of all of the block."""
        choice = self._choice
        states = {PENDING: (CallbackState.PENDING,), FAILING: (CallbackState.PENDING,), GIVEN_UP: (CallbackState.DEAD,)}
        wanted = states.get(choice.state, tuple(CallbackState) if not choice.state else ())
        if not wanted:
            return []
        owned = [shard]
        if shard is None:
            query = sa.select(shards.table.c.shard).where(shards.of_block(block))
            owned = [row.shard for row in await self._connection.execute(query)]
        is_listed = not (choice.recipient or choice.id or choice.kind or choice.state in (PENDING, FAILING))
        lists = [(one, int(state)) for one in owned for state in wanted]
        size = self._limit if is_listed else max(self._limit, EXAMINED // max(1, len(lists)))
        return [
            await self._part(
                sa.select(*_WAITING).where(_W.shard == one, _W.state == state, _W.account == self._account), size
            )
            for one, state in lists
        ]

    async def _part(self, query: sa.Select[Any], size: int) -> _Part:
        """Read the newest `size` rows of a list of callbacks in the queue."""
        ordered = query.where(_W.seq >= self._low, _W.seq < self._high).order_by(_W.seq.desc()).limit(size)
        for dialect in ("mysql", "mariadb"):
            ordered = ordered.with_hint(callbacks.table, "FORCE INDEX (callbacks_by_shard)", dialect)
        found = [_queued(row) for row in await self._connection.execute(ordered)]
        rows = [row for row in found if self._selects(row)]
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


async def read_callback(connection: Connection, account: str, seq: int) -> CallbackRecord | None:
    """Return one callback of an account, in whatever state; None if there is none."""
    stored = await callback_history.find(connection, account, seq)
    attempts = list(await callback_history.list_attempts(connection, account, seq))
    if stored is not None:
        last, slot = stored.entry, stored.entry.attempt % callback_history.ATTEMPTS
        attempts.append(Attempt(account, seq, slot, last.attempt, last.at, last.took, last.status, "", None))
        return CallbackRecord(_done(last), None, stored, sorted(attempts, key=lambda one: one.at))
    query = sa.select(*_WAITING, _W.body).where(_W.account == account, _W.seq == seq)
    row: Any = (await connection.execute(query)).first()
    if row is None:
        return None
    return CallbackRecord(_queued(row), row.body, None, sorted(attempts, key=lambda one: one.at))


def headers_of(entry: CallbackEntry, attempt: Attempt) -> Mapping[str, str]:
    """Return the headers of an attempt in their order, without `Host`, and without those that contain a secret or are
    made from one: `Authorization` and the signatures. In a post of several callbacks, `webhook-id` had the ids of all.
    """
    is_cloud = entry.kind in callbacks.CLOUD_KINDS
    headers = {
        "Content-Type": "application/json",
        "User-Agent": callbacks.CLOUD_USER_AGENT if is_cloud else callbacks.USER_AGENT,
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
    events: set[str] | None = None,
) -> ResendPage:
    """List a page of the given up, failing and ended callbacks that a filter selects, newest first.

    An event that was posted again before has several ended callbacks, of which the newest is listed.

    The caller passes `choice.until`, or the callbacks that a page caused would be selected by a later call without
    `before`. The other parameters are those of `list_callbacks`.

    events: ids of the events of earlier pages, to which those of this page are added; None for a single page
    """
    page = await list_callbacks(connection, account, choice, block=block, before=before, limit=limit)
    rows = await connection.execute(sa.select(shards.table.c.shard).where(shards.of_block(block)))
    present = {row.shard for row in rows}
    seqs: dict[int, list[int]] = {}
    if present:
        for row in newest_to_resend(page.rows, set() if events is None else events):
            seqs.setdefault(shard_to_resend(row, present), []).append(row.seq)
    return ResendPage(seqs, page.older)


def newest_to_resend(rows: Sequence[CallbackEntry], events: set[str]) -> Sequence[CallbackEntry]:
    """Return those of the given callbacks, which are sorted newest first, that are to be posted again: of each event
    the newest, unless it was not tried yet.

    events: ids of the events of earlier rows, to which those of these rows are added
    """
    found = []
    for row in rows:
        if row.event_id not in events and row.state != PENDING:
            found.append(row)
        events.add(row.event_id)
    return found


def shard_to_resend(row: CallbackEntry, present: Collection[int]) -> int:
    """Return the shard that posts a callback again. Any shard posts ended ones. That of an earlier layout may be gone.

    present: shards of the number, at least one
    """
    return row.shard if row.shard in present else min(present)
