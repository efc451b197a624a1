"""Audit of what users did besides replays and purges: contents shown, and numbers paused and resumed."""

from __future__ import annotations

import dataclasses
import enum
import secrets
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import callback_audits
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows

# Maximum length of a user's name, characters.
MAX_BY = 255


class AuditAction(enum.StrEnum):
    """Action, as `strings.toml` of the console names it."""

    SHOW_MESSAGE = "show_message"
    SHOW_CALLBACK = "show_callback"
    PAUSE_NUMBER = "pause_number"
    RESUME_NUMBER = "resume_number"


@dataclasses.dataclass(frozen=True, slots=True)
class AuditRow:
    """Action of a user."""

    id: Annotated[str, types.key(16)]  # random
    account: Annotated[str, types.key(20)]
    at: types.UnixMilliseconds
    action: Annotated[str, types.key(32)]  # an `AuditAction`
    # Id of the message, event id of the callback, or number.
    subject: Annotated[str, types.key(64)]
    # User, as reported by the command or the console.
    by: Annotated[str, types.text(MAX_BY), "requested_by"]


table = metadata.table_of(
    AuditRow,
    "audit_entries",
    sa.Index("audit_entries_by_time", "at"),
    sa.Index("audit_entries_by_account", "account", "at"),
    key=("id",),
)


def make(account: str, action: AuditAction, subject: str, *, by: str, at: int) -> AuditRow:
    """Return the row of an action, with a new id.

    at: Unix milliseconds
    """
    return AuditRow(secrets.token_hex(8), account, at, action, subject[:64], by[:MAX_BY])


async def add(connection: AsyncConnection, entry: AuditRow) -> None:
    """Record an action, once: a repetition with the same row changes nothing."""
    await add_rows(connection, table, [entry])


async def list_latest(connection: AsyncConnection, account: str, *, limit: int) -> Sequence[AuditRow]:
    """List the latest actions about a number, newest first."""
    query = sa.select(table).where(table.c.account == account).order_by(table.c.at.desc()).limit(limit)
    return [AuditRow(*row) for row in await connection.execute(query)]


async def list_after(connection: AsyncConnection, after: tuple[int, str], limit: int = 500) -> Sequence[AuditRow]:
    """List a page of actions about all numbers, oldest first, starting after the one with this time and id."""
    return [AuditRow(*row) for row in await callback_audits.list_after(connection, table, "id", after, limit)]


async def delete_before(connection: AsyncConnection, before: int, limit: int) -> int:
    """Delete at most `limit` actions older than `before` (Unix milliseconds). Returns the number deleted."""
    return await callback_audits.delete_before(connection, table, "id", before, limit)
