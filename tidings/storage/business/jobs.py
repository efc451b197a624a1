"""Job queue: accepted messages that are not yet safe on the network.

A job holds the sealed content first (`NEW`), then the ciphertext for the wire (`ENCRYPTED`), and is then deleted. The
holder of the shard's lease works from memory. This table is its log.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, delete_listed, save_rows, select_paged

# Rows that `list_jobs` reads without yielding to the event loop.
PAGE = 100


class JobForm(enum.IntEnum):
    """Form of a job's `body`."""

    NEW = 0  # the content, sealed under the installation's own key
    ENCRYPTED = 1  # the ciphertext for the recipient; only this is ever sent, unchanged
    POSTED = 2  # the sealed content, of which a post to the real Cloud API has begun


@dataclasses.dataclass(slots=True)
class Job:
    """Message to send."""

    # Id of the message.
    id: Annotated[str, types.key(64)]
    shard: int
    account: Annotated[str, types.key(20)]
    peer: Annotated[str, types.key(40)]
    # A `JobForm`.
    state: Annotated[int, sa.SmallInteger]
    # Kind of the envelope, "prekey" or "message"; empty while `NEW`.
    kind: Annotated[str, types.key(16)]
    body: bytes
    created_at: types.UnixMilliseconds
    request_id: Annotated[str, types.key(64)] = ""
    # Trace context of the request that accepted the message; empty for none.
    traceparent: Annotated[str, types.key(64), sa.DefaultClause("")] = ""
    # Unix milliseconds after which the message must not be delivered; None for the network's own limit.
    expires_at: Annotated[int | None, types.milliseconds()] = None

    def ttl(self, now: int) -> int:
        """Return the seconds left at `now` (Unix milliseconds), at least 1; 0 for the network's own limit."""
        return max(1, -((now - self.expires_at) // 1000)) if self.expires_at is not None else 0


table = metadata.table_of(Job, "jobs", key=("id",))


_FINISH = table.delete().where(table.c.id.in_(any_of("ids")))


async def enqueue(connection: AsyncConnection, jobs: Sequence[Job]) -> None:
    """Add jobs. Of existing ones, overwrite state, kind and body: they change from `NEW` to another form."""
    await save_rows(connection, table, sorted(jobs, key=attrgetter("id")), ("state", "kind", "body"))


async def finish(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete jobs that are safe on the network or have failed permanently."""
    await delete_listed(connection, _FINISH, "ids", ids)


_LIST = (
    sa.select(table)
    .where(table.c.shard == sa.bindparam("of_shard"), table.c.id > sa.bindparam("after"))
    .order_by(table.c.id)
    .limit(sa.bindparam("page"))
)


async def list_jobs(connection: AsyncConnection, shard: int) -> Sequence[Job]:
    """List all jobs of a shard in the order of acceptance; a new owner starts from this list."""
    found: list[Job] = []
    while True:
        after = found[-1].id if found else ""
        rows = await connection.execute(_LIST, {"of_shard": shard, "after": after, "page": PAGE})
        page = [Job(*row) for row in rows]
        found += page
        if len(page) < PAGE:
            return sorted(found, key=lambda job: (job.created_at, job.id))


async def list_ids(connection: AsyncConnection, ids: Collection[str]) -> Sequence[str]:
    """List those of the given jobs that are in the queue of any shard."""
    query = sa.select(table.c.id).where(table.c.id.in_(any_of("ids")))
    return [row.id for row in await select_paged(connection, query, "ids", ids)]


async def count(connection: AsyncConnection) -> int:
    """Count the jobs of all shards."""
    return int((await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar_one())
