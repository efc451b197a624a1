"""The layout of the shards: how many there are, and how often that has changed."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

# One row.
table = sa.Table(
    "shard_layout",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("layout", sa.Integer, nullable=False),
    sa.Column("shards", sa.Integer, nullable=False),
    mysql_engine="InnoDB",
)

_ROW = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """number: rises with each change of `shards`, so that what is from before it can be told."""

    number: int = 0
    shards: int = 1


async def create(connection: AsyncConnection, shards: int) -> Layout:
    """Make the first layout, unless there is one already; the one that there is now."""
    await connection.execute(insert_or_ignore(connection, table), [{"id": _ROW, "layout": 0, "shards": shards}])
    return await find(connection)


async def find(connection: AsyncConnection) -> Layout:
    """The present layout; one shard while none was made."""
    row = (await connection.execute(sa.select(table.c.layout, table.c.shards).where(table.c.id == _ROW))).first()
    return Layout(*row) if row is not None else Layout()
