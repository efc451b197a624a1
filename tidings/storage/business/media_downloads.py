"""Media files from recipients that have yet to be downloaded. The callbacks of their messages wait for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows, any_of, delete_listed, select_paged


@dataclasses.dataclass(slots=True)
class Download:
    """Message whose file is downloaded before its callback is written."""

    # Id of the message.
    id: Annotated[str, types.key(64)]
    shard: int
    account: Annotated[str, types.key(20)]
    sender: Annotated[str, types.key(20)]
    # Empty for a message that was not sent to a group.
    group_id: Annotated[str, types.key(64)]
    # Decrypted message, sealed.
    content: bytes = dataclasses.field(repr=False)
    # Unix milliseconds of the message.
    timestamp: types.UnixMilliseconds
    # Unix milliseconds of the row.
    created_at: types.UnixMilliseconds
    # Number of attempts, including the current one.
    attempt: int = 0
    # Unix milliseconds before which no attempt is made.
    due_at: types.UnixMilliseconds = 0
    # Request id of the message in logs; may be empty.
    request_id: Annotated[str, types.key(64)] = ""


@dataclasses.dataclass(frozen=True, slots=True)
class WithdrawnDownload:
    """Download that ends because the sender revoked its message; void unless the table has it."""

    # Id of the message.
    id: str
    account: str
    # Number that revoked the message.
    sender: str
    # Called with the download before it is deleted; again if the commit is repeated.
    found: Callable[[Download], None]


table = metadata.table_of(
    Download, "media_downloads", sa.Index("media_downloads_by_due", "shard", "due_at"), key=("id",)
)


_FINISH = table.delete().where(table.c.id.in_(any_of("ids")))
_FIND = sa.select(table).where(table.c.id.in_(any_of("ids")))
_RESCHEDULE = (
    table.update()
    .where(table.c.id == sa.bindparam("download"))
    .values(attempt=sa.bindparam("tries"), due_at=sa.bindparam("due"))
)


async def enqueue(connection: AsyncConnection, downloads: Sequence[Download]) -> None:
    """Add downloads. Existing ones stay unchanged."""
    await add_rows(connection, table, downloads)


async def reschedule(connection: AsyncConnection, downloads: Sequence[Download]) -> None:
    """Record attempts and the times at which the next ones are due."""
    if downloads:
        await connection.execute(
            _RESCHEDULE, [{"download": d.id, "tries": d.attempt, "due": d.due_at} for d in downloads]
        )


async def finish(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete downloads whose callback is written."""
    await delete_listed(connection, _FINISH, "ids", ids)


async def withdraw(connection: AsyncConnection, withdrawn: Sequence[WithdrawnDownload]) -> None:
    """Delete downloads of revoked messages."""
    rows = [Download(*row) for row in await select_paged(connection, _FIND, "ids", [entry.id for entry in withdrawn])]
    of = {(row.id, row.account, row.sender): row for row in rows}
    ended = []
    for entry in withdrawn:
        download = of.get((entry.id, entry.account, entry.sender))
        if download is not None:
            entry.found(download)
            ended.append(entry.id)
    await finish(connection, ended)


async def list_downloads(connection: AsyncConnection, shard: int, *, limit: int) -> Sequence[Download]:
    """List the `limit` downloads of a shard that are due first."""
    rows = await connection.execute(
        sa.select(table).where(table.c.shard == shard).order_by(table.c.due_at, table.c.id).limit(limit)
    )
    return [Download(*row) for row in rows]


async def count(connection: AsyncConnection, shard: int) -> int:
    """Count the waiting downloads of a shard."""
    query = sa.select(sa.func.count()).select_from(table).where(table.c.shard == shard)
    return int((await connection.execute(query)).scalar_one())
