"""Attempts at jobs that failed: how many, and why the last one did. A job that nothing has kept from being sent has no
row; the row of one that has goes with it.

They are not columns of `jobs`, every one of which each message that is accepted would have to write.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import jobs
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, delete_listed, pages, save_rows

MAX_ERROR = 255  # characters

table = sa.Table(
    "job_errors",
    metadata,
    # The job's. Without its shard: a job that comes to another one keeps what is known of it.
    sa.Column("id", types.key(64), primary_key=True),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("last_error", types.text(MAX_ERROR), nullable=False),
    sa.Column("tried_at", types.milliseconds(), nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(slots=True)
class JobError:
    """What is known of one job. id: the job's; attempts: that failed; tried_at: Unix milliseconds of the last one.

    last_error: in words of ours, without anything of the message.
    """

    id: str
    attempts: int
    last_error: str
    tried_at: int


@dataclasses.dataclass(frozen=True, slots=True)
class Changes:
    """saved: rows that are new or others than before; deleted: ids of jobs that are gone, never saved after it."""

    saved: Sequence[JobError] = ()
    deleted: Sequence[str] = ()


_DELETE = table.delete().where(table.c.id.in_(any_of("ids")))


async def execute(connection: AsyncConnection, changes: Sequence[Changes]) -> None:
    """Write changes in their order."""
    saved = {row.id: row for change in changes for row in change.saved}
    for page in pages(list(saved.values())):
        await save_rows(connection, table, ("id",), ("attempts", "last_error", "tried_at"), page)
    await delete_listed(connection, _DELETE, "ids", [job_id for change in changes for job_id in change.deleted])


async def list_of_shard(connection: AsyncConnection, shard: int) -> Sequence[JobError]:
    """Those of the jobs of a shard: what a new owner starts from."""
    query = sa.select(table).join(jobs.table, jobs.table.c.id == table.c.id).where(jobs.table.c.shard == shard)
    return [JobError(*row) for row in await connection.execute(query)]


async def delete_strays(connection: AsyncConnection, before: int, limit: int) -> int:
    """Delete rows without a job, of attempts before `before` (Unix milliseconds), at most `limit`; how many.

    A release that knows nothing of them leaves some when its jobs are done.
    """
    query: sa.Select[Any] = (
        sa.select(table.c.id)
        .outerjoin(jobs.table, jobs.table.c.id == table.c.id)
        .where(table.c.tried_at < before, jobs.table.c.id.is_(None))
        .limit(limit)
    )
    found = [row[0] for row in await connection.execute(query)]
    await delete_listed(connection, _DELETE, "ids", found)
    return len(found)
