"""Rows that the pages of the console show."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tests.webapp.console.conftest import NUMBER
from tidings.storage.business import callback_history, callbacks, job_errors, jobs, messages
from tidings.storage.business.callback_history import Attempt, EndedAttempt
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.job_errors import JobError, JobErrorChanges
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.database import Database
from tidings.wire.ids import MessageIds

AT = 1_780_000_000_000  # Unix milliseconds
PEER = "15550140001"


def message(number: int, **changes: object) -> MessageRow:
    """Return a message that was accepted `number` seconds after `AT`."""
    ids = MessageIds(lambda: AT + number * 1000)
    row = MessageRow(ids.new(), NUMBER, 0, PEER, "text", int(Status.ACCEPTED), AT + number * 1000, "request-1")
    return dataclasses.replace(row, **changes)


def callback(number: int, **changes: object) -> Callback:
    """Return a callback that was made `number` seconds after `AT`."""
    at = AT + number * 1000
    name = f"gBEGmessage{number}"
    row = Callback(at * 1000 << 5, 0, NUMBER, name, "status_change", b'{"statuses":[]}', at, recipient=PEER)
    return dataclasses.replace(row, **changes)


async def store_messages(database: Database, *rows: MessageRow) -> None:
    async with database.transaction() as connection:
        await messages.add(connection, rows)


async def store_callbacks(
    database: Database,
    *,
    pending: Sequence[Callback] = (),
    failing: Sequence[Callback] = (),
    dead: Sequence[Callback] = (),
    done: Sequence[Callback] = (),
) -> None:
    """Store callbacks in each state. Their texts are stored as if they were sealed. Those done took 15 ms."""
    ended = [EndedAttempt(row, row.attempt or 1, _tried_at(row, row.attempt or 1), 15, 200, b"") for row in done]
    async with database.transaction() as connection:
        every = [*pending, *failing, *dead]
        await callbacks.enqueue(connection, every, [row.body for row in every])
        await callbacks.reschedule(connection, failing, [row.body for row in failing])
        await callbacks.mark_dead(connection, dead, [row.body for row in dead])
        await callback_history.add(connection, ended, lambda account, name, texts: texts)


def attempt(row: Callback, number: int, status: int | None = 200, error: str = "", response: bytes = b"") -> Attempt:
    """Return an attempt at a callback, made `number` minutes after its creation."""
    return callback_history.attempt(row, number, _tried_at(row, number), 15, status, error=error, response=response)


def _tried_at(row: Callback, number: int) -> int:
    return row.created_at + number * 60_000


async def store_attempts(database: Database, *attempts: Attempt) -> None:
    async with database.transaction() as connection:
        await callback_history.save_attempts(connection, attempts)


async def fail_attempts(database: Database, row: MessageRow, error: str) -> None:
    """Store a job of a message whose attempts failed."""
    async with database.transaction() as connection:
        await job_errors.execute(connection, [JobErrorChanges([JobError(row.id, 3, error, AT)])])


async def enqueue_job(database: Database, row: MessageRow) -> None:
    """Store the job of a message."""
    async with database.transaction() as connection:
        job = Job(row.id, 0, NUMBER, PEER, int(JobForm.NEW), "text", b"sealed", row.created_at)
        await jobs.enqueue(connection, [job])
