"""Replays and purges of many callbacks of a number. The Webapp that carries one out reports its progress here."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business.tables import metadata

# Milliseconds without a report after which a change is silent, and after which it counts as ended with its Webapp.
# Webapps report every 2,000; they are silent while they wait for a Coreapp, which answers within 40,000, or for the
# database.
SILENT_MS, LOST_MS = 10_000, 120_000
# Maximum length of a text, characters.
MAX_TEXT = 255

table = metadata.table(
    "callback_changes",
    sa.Column("id", types.key(16), primary_key=True),
    sa.Column("account", types.key(20), nullable=False),
    sa.Column("action", types.key(8), nullable=False),
    sa.Column("choice", types.text(MAX_TEXT), nullable=False),
    sa.Column("requested_by", types.text(MAX_TEXT), nullable=False),
    sa.Column("total", sa.Integer, nullable=False),
    sa.Column("started_at", types.milliseconds(), nullable=False),
    sa.Column("done", sa.Integer, nullable=False),
    sa.Column("stay", sa.Integer, nullable=False),
    sa.Column("waits", types.text(MAX_TEXT), nullable=False),
    sa.Column("problem", types.text(MAX_TEXT), nullable=False),
    sa.Column("is_stopped", sa.Boolean, nullable=False),
    sa.Column("has_ended", sa.Boolean, nullable=False),
    sa.Column("reported_at", types.milliseconds(), nullable=False),
    sa.Index("callback_changes_by_account", "account", "started_at"),
)


class ChangeState(enum.StrEnum):
    """State of a change, as `strings.toml` of the console names it."""

    RUNNING = "running"
    STOPPING = "stopping"  # stops after the callbacks in progress
    STOPPED = "stopped"  # stopped by a user or by an error
    FINISHED = "finished"
    LOST = "lost"  # ended with its Webapp


@dataclasses.dataclass(frozen=True, slots=True)
class CallbackChange:
    """Replay or purge of many callbacks."""

    id: str
    account: str
    action: str
    # Description of the selection.
    choice: str
    # Name of the user in audits.
    by: str
    # Number of selected callbacks.
    total: int
    # Unix milliseconds.
    started_at: int
    # Callbacks that were posted again or deleted, at the last report.
    done: int = 0
    # Callbacks left as they are, because they had changed.
    stay: int = 0
    # Reason for which a Coreapp refuses the next callbacks for the moment; empty for none.
    waits: str = ""
    # Error that ended the change; empty for none.
    problem: str = ""
    # Whether a user has requested its end.
    is_stopped: bool = False
    has_ended: bool = False
    # Milliseconds since the last report.
    silence_ms: int = 0

    @property
    def state(self) -> ChangeState:
        if self.has_ended:
            is_whole = not self.problem and (not self.is_stopped or self.done + self.stay >= self.total)
            return ChangeState.FINISHED if is_whole else ChangeState.STOPPED
        if self.silence_ms > LOST_MS:
            return ChangeState.LOST
        return ChangeState.STOPPING if self.is_stopped else ChangeState.RUNNING

    @property
    def is_silent(self) -> bool:
        """Return whether it has not ended as far as is known, and its Webapp does not report."""
        return not self.has_ended and self.silence_ms > SILENT_MS

    @property
    def is_over(self) -> bool:
        """Return whether it has ended, by itself or with its Webapp."""
        return self.state not in (ChangeState.RUNNING, ChangeState.STOPPING)


async def add(connection: AsyncConnection, change: CallbackChange) -> None:
    """Record a new change."""
    row = {
        "id": change.id,
        "account": change.account,
        "action": change.action,
        "choice": change.choice[:MAX_TEXT],
        "requested_by": change.by[:MAX_TEXT],
        "total": change.total,
        "started_at": change.started_at,
        "done": change.done,
        "stay": change.stay,
        "waits": change.waits[:MAX_TEXT],
        "problem": change.problem[:MAX_TEXT],
        "is_stopped": change.is_stopped,
        "has_ended": change.has_ended,
        "reported_at": database_clock.now(connection),
    }
    await connection.execute(table.insert().values(row))


async def report(connection: AsyncConnection, change_id: str, *, done: int, stay: int, waits: str) -> bool:
    """Store the progress of a change. Returns False if a user has stopped it or its number was removed."""
    progress = {"done": done, "stay": stay, "waits": waits[:MAX_TEXT], "reported_at": database_clock.now(connection)}
    await connection.execute(table.update().where(table.c.id == change_id).values(progress))
    query = sa.select(table.c.is_stopped).where(table.c.id == change_id)
    return (await connection.execute(query)).scalar() is False


async def end(connection: AsyncConnection, change_id: str, *, done: int, stay: int, problem: str) -> None:
    """Store the end of a change.

    problem: error that ended it; empty for none
    """
    last = {"done": done, "stay": stay, "waits": "", "problem": problem[:MAX_TEXT], "has_ended": True}
    await connection.execute(table.update().where(table.c.id == change_id).values(last))


async def stop(connection: AsyncConnection, account: str, change_id: str) -> None:
    """Request the end of a change. Its Webapp ends it after the callbacks in progress."""
    chosen = table.update().where(table.c.id == change_id, table.c.account == account, ~table.c.has_ended)
    await connection.execute(chosen.values(is_stopped=True))


async def find(connection: AsyncConnection, account: str, change_id: str) -> CallbackChange | None:
    """Return a change of a number; None if there is none with this id."""
    found = await _select(connection, table.c.account == account, table.c.id == change_id)
    return found[0] if found else None


async def list_latest(connection: AsyncConnection, account: str, *, limit: int) -> Sequence[CallbackChange]:
    """List the changes of a number, the latest first."""
    return await _select(connection, table.c.account == account, limit=limit)


async def delete(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete changes."""
    await connection.execute(table.delete().where(table.c.id.in_(ids)))


async def _select(
    connection: AsyncConnection, *conditions: sa.ColumnElement[bool], limit: int = 1
) -> list[CallbackChange]:
    c = table.c
    query = sa.select(
        *(c.id, c.account, c.action, c.choice, c.requested_by, c.total, c.started_at),
        *(c.done, c.stay, c.waits, c.problem, c.is_stopped, c.has_ended),
        database_clock.now(connection) - c.reported_at,
    )
    query = query.where(*conditions).order_by(c.started_at.desc(), c.id).limit(limit)
    return [CallbackChange(*row) for row in await connection.execute(query)]
