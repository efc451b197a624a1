"""Notes between shards: what one has found out, or wants sent, that is another's to do.

A note is written with what it follows from, and deleted with what follows from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, delete_listed, insert_or_ignore, pages

table = sa.Table(
    "shard_notes",
    metadata,
    sa.Column("id", types.key(64), primary_key=True),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("account", types.key(20), nullable=False),
    sa.Column("kind", types.key(16), nullable=False),
    sa.Column("peer", types.key(20), nullable=False),
    sa.Column("group_id", types.key(64), nullable=False),
    sa.Column("body", types.blob(), nullable=False),
    sa.Column("created_at", types.milliseconds(), nullable=False),
    sa.Index("shard_notes_by_shard", "shard", "id"),
    mysql_engine="InnoDB",
)

SEND = "send"  # the kind of a note that has something sent to its peer; the others are for the first shard


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """For the owner of a shard.

    peer: whom it is about, or whom something is to be sent to; group_id: empty where no group is meant; body: sealed;
    created_at: Unix milliseconds.
    """

    id: str
    shard: int
    account: str
    kind: str
    peer: str
    group_id: str
    body: bytes = dataclasses.field(repr=False)
    created_at: int


_DELETE = table.delete().where(table.c.id.in_(any_of("ids")))


async def add(connection: AsyncConnection, notes: Sequence[Note]) -> None:
    """Leave notes."""
    if notes:
        await connection.execute(insert_or_ignore(connection, table), [dataclasses.asdict(note) for note in notes])


async def delete(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """These are done."""
    await delete_listed(connection, _DELETE, "ids", ids)


async def list_notes(connection: AsyncConnection, shard: int, *, limit: int) -> Sequence[Note]:
    """The first notes for a shard, in the order in which they were made."""
    rows = await connection.execute(sa.select(table).where(table.c.shard == shard).order_by(table.c.id).limit(limit))
    return [Note(*row) for row in rows]


async def list_addressed(connection: AsyncConnection) -> Sequence[int]:
    """The shards that there are notes for."""
    return [row[0] for row in await connection.execute(sa.select(table.c.shard).distinct())]


async def list_ids(connection: AsyncConnection, ids: Collection[str]) -> Sequence[str]:
    """Those of these notes that are not done."""
    found: list[str] = []
    for page in pages(list(ids)):
        found += [row[0] for row in await connection.execute(sa.select(table.c.id).where(table.c.id.in_(page)))]
    return found
