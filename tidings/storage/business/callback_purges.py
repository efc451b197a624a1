"""Audit of purges: number of callbacks deleted unposted or jobs deleted unsent, with time, user and selection."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import callback_audits
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_update

# Maximum length of a text, characters.
MAX_TEXT = 255

# Purged queues.
CALLBACKS, JOBS = "callbacks", "jobs"


def _table(name: str, *parts: sa.Index) -> sa.Table:
    return metadata.table(
        name,
        sa.Column("at", types.milliseconds(), primary_key=True),
        sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("purged_by", types.text(MAX_TEXT), nullable=False),
        sa.Column("choice", types.text(MAX_TEXT), nullable=False),
        sa.Column("deleted", sa.Integer, nullable=False),
        *parts,
    )


_TABLES = {
    CALLBACKS: _table("callback_purges", sa.Index("callback_purges_by_shard", "shard", "at")),
    JOBS: _table("job_purges"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class CallbackPurgeRow:
    """One deletion in one shard."""

    # Unix milliseconds.
    at: int
    shard: int
    # User, as reported by the command.
    by: str
    # Selection of rows, as reported by the command.
    choice: str
    # Number of rows deleted from `queue`.
    deleted: int
    # `CALLBACKS` or `JOBS`.
    queue: str = CALLBACKS


async def add(connection: AsyncConnection, purge: CallbackPurgeRow) -> None:
    """Record a purge, in the transaction that deletes the rows."""
    table = _TABLES[purge.queue]
    found = await connection.execute(
        sa.select(table.c.deleted).where(table.c.at == purge.at, table.c.shard == purge.shard)
    )
    # Pages of one purge in the same millisecond share a row.
    await put(connection, dataclasses.replace(purge, deleted=purge.deleted + (found.scalar() or 0)))


async def put(connection: AsyncConnection, purge: CallbackPurgeRow) -> None:
    """Record a purge in place of one of the same time and shard. May be repeated."""
    row: dict[str, Any] = {
        "at": purge.at,
        "shard": purge.shard,
        "purged_by": purge.by[:MAX_TEXT],
        "choice": purge.choice[:MAX_TEXT],
        "deleted": purge.deleted,
    }
    await connection.execute(insert_or_update(connection, _TABLES[purge.queue], ("deleted",)), [row])


async def list_after(
    connection: AsyncConnection, after: tuple[int, int], limit: int = 500, *, queue: str = CALLBACKS
) -> Sequence[CallbackPurgeRow]:
    """List a page of the purges of one queue, oldest first, starting after the one with this time and shard."""
    rows = await callback_audits.list_after(connection, _TABLES[queue], "shard", after, limit)
    return [CallbackPurgeRow(*(*row, queue)) for row in rows]


async def list_latest(connection: AsyncConnection, shards: Sequence[int], limit: int) -> Sequence[CallbackPurgeRow]:
    """List the latest purges of callbacks in these shards, newest first."""
    table = _TABLES[CALLBACKS]
    found: list[CallbackPurgeRow] = []
    for shard in shards:
        query = sa.select(table).where(table.c.shard == shard)
        for dialect in ("mysql", "mariadb"):
            query = query.with_hint(table, "FORCE INDEX (callback_purges_by_shard)", dialect)
        rows = await connection.execute(query.order_by(table.c.at.desc()).limit(limit))
        found += [CallbackPurgeRow(*row) for row in rows]
    return sorted(found, key=lambda row: (-row.at, row.shard))[:limit]


async def delete_before(connection: AsyncConnection, before: int, limit: int) -> int:
    """Delete purges older than `before` (Unix milliseconds), at most `limit` per queue. Returns the number deleted."""
    return sum([await callback_audits.delete_before(connection, t, "shard", before, limit) for t in _TABLES.values()])
