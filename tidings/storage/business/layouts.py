"""The layout of the shards: how many there are, how often that has changed, and how many there are to be."""

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
    # 0 while there is no change to be made.
    sa.Column("wanted", sa.Integer, nullable=False),
    # Rows, by the change that is being made.
    sa.Column("moved", sa.BigInteger, nullable=False),
    mysql_engine="InnoDB",
)

_ROW = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """number: rises with each change of `shards`, so that what is from before it can be told.

    wanted: how many shards there are to be, 0 for as many as there are; moved: rows that are in their places there.
    """

    number: int = 0
    shards: int = 1
    wanted: int = 0
    moved: int = 0

    @property
    def is_changing(self) -> bool:
        """Is there a change to be made? Nobody claims a shard before it has been."""
        return self.wanted != 0


async def create(connection: AsyncConnection, shards: int) -> Layout:
    """Make the first layout, unless there is one already; the one that there is now."""
    first = {"id": _ROW, "layout": 0, "shards": shards, "wanted": 0, "moved": 0}
    await connection.execute(insert_or_ignore(connection, table), [first])
    return await find(connection)


async def find(connection: AsyncConnection, *, lock: bool = False) -> Layout:
    """The present layout; one shard while none was made. lock: nobody changes it until the transaction ends."""
    query = sa.select(table.c.layout, table.c.shards, table.c.wanted, table.c.moved).where(table.c.id == _ROW)
    row = (await connection.execute(query.with_for_update() if lock else query)).first()
    return Layout(*row) if row is not None else Layout()


async def request(connection: AsyncConnection, shards: int) -> Layout:
    """Have so many shards made of those that there are. A change that is being made is made into this one."""
    await create(connection, shards)
    layout = await find(connection, lock=True)
    if (layout.wanted or layout.shards) == shards:
        return layout
    await connection.execute(table.update().where(table.c.id == _ROW).values(wanted=shards, moved=0))
    return dataclasses.replace(layout, wanted=shards, moved=0)


async def note_moved(connection: AsyncConnection, rows: int) -> None:
    """So many rows more are in their places."""
    await connection.execute(table.update().where(table.c.id == _ROW).values(moved=table.c.moved + rows))


async def replace(connection: AsyncConnection, before: Layout) -> Layout:
    """As many shards as were wanted, under the next number."""
    after = Layout(before.number + 1, before.wanted)
    values = {"layout": after.number, "shards": after.shards, "wanted": 0, "moved": 0}
    await connection.execute(table.update().where(table.c.id == _ROW).values(values))
    return after
