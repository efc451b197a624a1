"""Views of the job queue and the callback queue for operators: everything except the bodies."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.business import callbacks, job_errors, jobs, messages, quarantine
from tidings.storage.database import any_of, select_paged

# Statuses of callbacks: not tried yet; failed and waiting for the next attempt; given up.
PENDING, FAILING, DEAD = "pending", "failing", "dead"
CALLBACK_STATUSES = (PENDING, FAILING, DEAD)
# Statuses of jobs: accepted; encrypted for the recipient.
NEW, ENCRYPTED = "new", "encrypted"
JOB_STATUSES = (NEW, ENCRYPTED)

# Statuses of items that ended a process or a shard: handled again; not handled; to be handled again when the shard is
# next opened.
SUSPECT, QUARANTINED, RELEASED = "suspect", "quarantined", "released"
QUARANTINE_STATUSES = (SUSPECT, QUARANTINED, RELEASED)

_JOB_STATES = {NEW: jobs.JobForm.NEW, ENCRYPTED: jobs.JobForm.ENCRYPTED}
_WAITING, _GIVEN_UP = int(callbacks.CallbackState.PENDING), int(callbacks.CallbackState.DEAD)


@dataclasses.dataclass(frozen=True, slots=True)
class RowFilter:
    """Selection of rows. Each field narrows it, unless it is empty, zero or None."""

    statuses: tuple[str, ...] = ()
    # Earliest creation time of a row, Unix milliseconds.
    since: int = 0
    # End of the creation times, excluded, Unix milliseconds.
    until: int = 0
    # Number, or group id.
    recipient: str = ""
    shard: int | None = None
    # Number of the business.
    number: str = ""
    # For callbacks only.
    kind: str = ""
    # For callbacks only: rows with one of these `seqs` or one of these own `events`.
    seqs: tuple[int, ...] = ()
    events: tuple[str, ...] = ()
    # For the quarantine only: ids of items.
    ids: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class CallbackView:
    """Callback without its body. Fields without a comment are as in `callbacks.Callback`."""

    seq: int
    shard: int
    # One of `CALLBACK_STATUSES`.
    status: str
    kind: str
    subject: str
    # Sender or recipient of the message that it is about; empty if the message is unknown or deleted.
    recipient: str
    attempt: int
    created_at: int
    due_at: int
    last_error: str
    request_id: str
    event: str

    @property
    def event_id(self) -> str:
        """Return the event id, which is the same for every attempt."""
        return callbacks.event_id(self.seq, self.event)


@dataclasses.dataclass(frozen=True, slots=True)
class JobView:
    """Job without its body."""

    # Id of the message.
    id: str
    shard: int
    # One of `JOB_STATUSES`.
    status: str
    recipient: str
    # Unix milliseconds.
    created_at: int
    request_id: str
    # Number of failed attempts.
    attempts: int = 0
    # Error of the last failed attempt; empty for none.
    last_error: str = ""
    # Unix milliseconds of the last failed attempt; 0 for none.
    tried_at: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class QuarantineView:
    """Item that ended a process or a shard, without its body."""

    # An `ItemKind`.
    kind: str
    # Id of the message, id of the envelope, or `seq` of the callback.
    id: str
    # One of `QUARANTINE_STATUSES`.
    status: str
    # Recipient of the message, or sender of a quarantined delivery; empty if unknown.
    peer: str
    # Number of attempts.
    attempts: int
    last_error: str
    # Unix milliseconds of the last attempt's end.
    tried_at: int


@dataclasses.dataclass(frozen=True, slots=True)
class Depth:
    """Number of rows of one queue, shard and status."""

    # "jobs" or "callbacks".
    queue: str
    shard: int
    status: str
    count: int
    # Creation time of the oldest row, Unix milliseconds.
    oldest: int


_CALLBACKS, _JOBS, _MESSAGES, _ERRORS = callbacks.table, jobs.table, messages.table, job_errors.table
_ITEMS = quarantine.table
_STATUS = sa.case((_CALLBACKS.c.state == _GIVEN_UP, DEAD), (_CALLBACKS.c.attempt > 0, FAILING), else_=PENDING)


async def list_callbacks(
    connection: AsyncConnection, choice: RowFilter, *, after: int = 0, limit: int = 1000
) -> Sequence[CallbackView]:
    """List callbacks with a `seq` above `after`, in order. Selection by recipient reads all otherwise selected rows."""
    columns = _CALLBACKS.c
    recipient = sa.func.coalesce(_MESSAGES.c.peer, "")
    query = (
        sa.select(
            columns.seq,
            columns.shard,
            _STATUS,
            columns.kind,
            columns.subject,
            recipient,
            columns.attempt,
            columns.created_at,
            columns.due_at,
            columns.last_error,
            columns.request_id,
            sa.func.coalesce(columns.event, ""),
        )
        .select_from(_CALLBACKS.outerjoin(_MESSAGES, _MESSAGES.c.id == callbacks.MESSAGE_ID))
        .where(columns.seq > after, *_narrowed(_CALLBACKS, choice), *_of_statuses(choice.statuses))
        .order_by(columns.seq)
        .limit(limit)
    )
    if choice.recipient:
        query = query.where(_MESSAGES.c.peer == choice.recipient)
    if choice.kind:
        query = query.where(columns.kind == choice.kind)
    if choice.seqs or choice.events:
        query = query.where(sa.or_(columns.seq.in_(choice.seqs), columns.event.in_(choice.events)))
    rows: Any = await connection.execute(query)
    return [CallbackView(*row) for row in rows]


async def read_statuses(connection: AsyncConnection, shard: int, seqs: Sequence[int]) -> Mapping[int, str]:
    """Return the statuses of those of the given callbacks of a shard that exist, by `seq`."""
    here = (_CALLBACKS.c.shard == shard, _CALLBACKS.c.seq.in_(any_of("seqs")))
    rows = await select_paged(connection, sa.select(_CALLBACKS.c.seq, _STATUS).where(*here), "seqs", seqs)
    return dict(rows)


def changed_since(found: Mapping[int, str], statuses: Collection[str]) -> Set[int]:
    """Return the callbacks whose status is not one of `statuses`; none if `statuses` is empty."""
    return {seq for seq, status in found.items() if statuses and status not in statuses}


async def list_jobs(
    connection: AsyncConnection, choice: RowFilter, *, after: str = "", limit: int = 1000
) -> Sequence[JobView]:
    """List jobs with an id above `after`, in the order of acceptance."""
    columns = _JOBS.c
    query = _select_jobs().where(columns.id > after, *_narrowed(_JOBS, choice)).order_by(columns.id).limit(limit)
    if choice.statuses:
        query = query.where(columns.state.in_([int(_JOB_STATES[status]) for status in choice.statuses]))
    if choice.recipient:
        query = query.where(columns.peer == choice.recipient)
    return [_job_view(row) for row in await connection.execute(query)]


async def list_jobs_of(connection: AsyncConnection, ids: Sequence[str]) -> Sequence[JobView]:
    """List those of the given messages that have a job."""
    query = _select_jobs().where(_JOBS.c.id.in_(any_of("ids")))
    return [_job_view(row) for row in await select_paged(connection, query, "ids", ids)]


def _select_jobs() -> sa.Select[Any]:
    columns = _JOBS.c
    return sa.select(
        columns.id,
        columns.shard,
        columns.state,
        columns.peer,
        columns.created_at,
        columns.request_id,
        sa.func.coalesce(_ERRORS.c.attempts, 0),
        sa.func.coalesce(_ERRORS.c.last_error, ""),
        sa.func.coalesce(_ERRORS.c.tried_at, 0),
    ).select_from(_JOBS.outerjoin(_ERRORS, _ERRORS.c.id == columns.id))


def _job_view(row: Any) -> JobView:
    job_id, shard, state, *more = row
    return JobView(job_id, shard, job_status(state), *more)


async def list_quarantine(
    connection: AsyncConnection, choice: RowFilter, *, after: tuple[str, str] = ("", ""), limit: int = 1000
) -> Sequence[QuarantineView]:
    """List items after the given kind and id, in the order of both. `since` and `until` select by `tried_at`."""
    columns = _ITEMS.c
    status = sa.case(
        (columns.attempts >= quarantine.MAX_ATTEMPTS, QUARANTINED), (columns.attempts > 0, SUSPECT), else_=RELEASED
    )
    peer = sa.func.coalesce(_JOBS.c.peer, columns.peer)
    is_job = sa.and_(_JOBS.c.id == columns.id, columns.kind == quarantine.ItemKind.JOB)
    query = (
        sa.select(columns.kind, columns.id, status, peer, columns.attempts, columns.last_error, columns.tried_at)
        .select_from(_ITEMS.outerjoin(_JOBS, is_job))
        .where(sa.or_(columns.kind > after[0], sa.and_(columns.kind == after[0], columns.id > after[1])))
        .order_by(columns.kind, columns.id)
        .limit(limit)
    )
    if choice.statuses:
        query = query.where(status.in_(choice.statuses))
    if choice.kind:
        query = query.where(columns.kind == choice.kind)
    if choice.recipient:
        query = query.where(peer == choice.recipient)
    if choice.number:
        query = query.where(sa.func.coalesce(_JOBS.c.account, columns.account) == choice.number)
    if choice.ids:
        query = query.where(columns.id.in_(choice.ids))
    if choice.since:
        query = query.where(columns.tried_at >= choice.since)
    if choice.until:
        query = query.where(columns.tried_at < choice.until)
    return [QuarantineView(*row) for row in await connection.execute(query)]


async def depths(connection: AsyncConnection) -> Sequence[Depth]:
    """Count the rows of both queues by shard and status. Reads both queues."""
    found = await connection.execute(
        sa.select(_JOBS.c.shard, _JOBS.c.state, sa.func.count(), sa.func.min(_JOBS.c.created_at))
        .group_by(_JOBS.c.shard, _JOBS.c.state)
        .order_by(_JOBS.c.shard, _JOBS.c.state)
    )
    queued = [Depth("jobs", shard, job_status(state), count, oldest) for shard, state, count, oldest in found]
    status = _STATUS.label("status")
    found = await connection.execute(
        sa.select(_CALLBACKS.c.shard, status, sa.func.count(), sa.func.min(_CALLBACKS.c.created_at))
        .group_by(_CALLBACKS.c.shard, status)
        .order_by(_CALLBACKS.c.shard, status)
    )
    return [*queued, *(Depth("callbacks", *row) for row in found)]


def job_status(state: int) -> str:
    """Return the status, one of `JOB_STATUSES`, for the state of a job."""
    return ENCRYPTED if state == int(jobs.JobForm.ENCRYPTED) else NEW


def _narrowed(table: sa.Table, choice: RowFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if choice.since:
        conditions.append(table.c.created_at >= choice.since)
    if choice.until:
        conditions.append(table.c.created_at < choice.until)
    if choice.shard is not None:
        conditions.append(table.c.shard == choice.shard)
    if choice.number:
        conditions.append(table.c.account == choice.number)
    return conditions


def _of_statuses(statuses: Sequence[str]) -> list[Any]:
    if not statuses or set(statuses) == set(CALLBACK_STATUSES):
        return []
    waiting = _CALLBACKS.c.state == _WAITING
    conditions = {
        PENDING: sa.and_(waiting, _CALLBACKS.c.attempt == 0),
        FAILING: sa.and_(waiting, _CALLBACKS.c.attempt > 0),
        DEAD: _CALLBACKS.c.state == _GIVEN_UP,
    }
    return [sa.or_(*(conditions[status] for status in statuses))]
