"""Cross-shard messages: rows by which one shard asks another to act.

A message is written in the transaction of its cause, and deleted in the transaction of its effects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows, any_of, delete_listed, select_paged

# Kind of a message that asks for something to be sent to its peer. All other kinds are for shard 0.
SEND = "send"


@dataclasses.dataclass(frozen=True, slots=True)
class CrossShardMessage:
    """Cross-shard message for the owner of a shard."""

    id: Annotated[str, types.key(64)]
    # Shard that receives the message.
    shard: int
    account: Annotated[str, types.key(20)]
    kind: Annotated[str, types.key(16)]
    # Number that the message is about, or that something is to be sent to.
    peer: Annotated[str, types.key(20)]
    # Empty when the message concerns no group.
    group_id: Annotated[str, types.key(64)]
    # Sealed.
    body: bytes = dataclasses.field(repr=False)
    created_at: types.UnixMilliseconds


table = metadata.table_of(
    CrossShardMessage, "shard_notes", sa.Index("shard_notes_by_shard", "shard", "id"), key=("id",)
)


_DELETE = table.delete().where(table.c.id.in_(any_of("ids")))


async def add(connection: AsyncConnection, notes: Sequence[CrossShardMessage]) -> None:
    """Add cross-shard messages. Those that exist stay unchanged."""
    await add_rows(connection, table, notes)


async def delete(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete messages that have been handled."""
    await delete_listed(connection, _DELETE, "ids", ids)


async def list_messages(connection: AsyncConnection, shard: int, *, limit: int) -> Sequence[CrossShardMessage]:
    """List the oldest messages for a shard, at most `limit`, in the order in which they were made."""
    rows = await connection.execute(sa.select(table).where(table.c.shard == shard).order_by(table.c.id).limit(limit))
    return [CrossShardMessage(*row) for row in rows]


async def list_addressed(connection: AsyncConnection) -> Sequence[int]:
    """List the shards that have messages waiting."""
    return [row[0] for row in await connection.execute(sa.select(table.c.shard).distinct())]


async def list_ids(connection: AsyncConnection, ids: Collection[str]) -> Sequence[str]:
    """List those of the given messages that have not been handled."""
    query = sa.select(table.c.id).where(table.c.id.in_(any_of("ids")))
    return [row.id for row in await select_paged(connection, query, "ids", ids)]
