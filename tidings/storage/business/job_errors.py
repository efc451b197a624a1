"""Failed attempts at jobs: their number and the error of the last one. A job without failures has no row, and a row is
deleted with its job.

These are not columns of `jobs`, because every accepted message would have to write them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import jobs
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, delete_listed, pages, save_rows

# Maximum length of `last_error`, characters.
MAX_ERROR = 255


@dataclasses.dataclass(slots=True)
class JobError:
    """Failed attempts at one job."""

    # Id of the job. There is no shard column, so that a job that moves to another shard keeps its row.
    id: Annotated[str, types.key(64)]
    # Number of failed attempts.
    attempts: int
    # Our own description, without any part of the message.
    last_error: Annotated[str, types.text(MAX_ERROR)]
    # Unix milliseconds of the last failed attempt.
    tried_at: types.UnixMilliseconds


table = metadata.table_of(JobError, "job_errors", key=("id",))


@dataclasses.dataclass(frozen=True, slots=True)
class JobErrorChanges:
    """Changes of rows in one batch."""

    # New or changed rows.
    saved: Sequence[JobError] = ()
    # Ids of deleted jobs, for which no row is saved later.
    deleted: Sequence[str] = ()


_DELETE = table.delete().where(table.c.id.in_(any_of("ids")))


async def execute(connection: AsyncConnection, changes: Sequence[JobErrorChanges]) -> None:
    """Write changes in their order."""
    saved = {row.id: row for change in changes for row in change.saved}
    for page in pages(list(saved.values())):
        await save_rows(connection, table, page)
    await delete_listed(connection, _DELETE, "ids", [job_id for change in changes for job_id in change.deleted])


async def list_of_shard(connection: AsyncConnection, shard: int) -> Sequence[JobError]:
    """List the failed attempts at the jobs of a shard; a new owner starts from this list."""
    query = sa.select(table).join(jobs.table, jobs.table.c.id == table.c.id).where(jobs.table.c.shard == shard)
    return [JobError(*row) for row in await connection.execute(query)]


async def delete_strays(connection: AsyncConnection, before: int, limit: int) -> int:
    """Delete rows without a job whose last attempt was before `before` (Unix milliseconds), at most `limit`.

    Returns the number deleted. Releases that do not know this table leave such rows behind when their jobs are done.
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
