"""Layout of a number's shards: how many there are, its generation, and the wanted number of shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

table = metadata.table(
    "shard_layout",
    # Shard block of the number.
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("layout", sa.Integer, nullable=False),
    sa.Column("shards", sa.Integer, nullable=False),
    # Wanted number of shards; 0 when no change is requested.
    sa.Column("wanted", sa.Integer, nullable=False),
    # Number of rows moved so far by the current change.
    sa.Column("moved", sa.BigInteger, nullable=False),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Number of shards and its planned change."""

    # Generation: rises with each change of `shards`, so that data of an earlier layout can be recognised.
    number: int = 0
    shards: int = 1
    # Wanted number of shards; 0 when no change is requested.
    wanted: int = 0
    # Rows that the current change has moved to their new shards.
    moved: int = 0

    @property
    def is_changing(self) -> bool:
        """Return whether a change is requested. No shard is claimed until it is done."""
        return self.wanted != 0


async def create(connection: AsyncConnection, shards: int, block: int = 0) -> Layout:
    """Create the first layout of a number, unless one exists. Returns the present layout."""
    first = {"id": block, "layout": 0, "shards": shards, "wanted": 0, "moved": 0}
    await connection.execute(insert_or_ignore(connection, table), [first])
    return await find(connection, block)


async def find(connection: AsyncConnection, block: int = 0, *, lock: bool = False) -> Layout:
    """Find the present layout; one shard if none was created. `lock` prevents changes until the transaction ends."""
    query = sa.select(table.c.layout, table.c.shards, table.c.wanted, table.c.moved).where(table.c.id == block)
    row = (await connection.execute(query.with_for_update() if lock else query)).first()
    return Layout(*row) if row is not None else Layout()


async def list_layouts(connection: AsyncConnection) -> Mapping[int, Layout]:
    """Return the layouts of all numbers by shard block."""
    rows = await connection.execute(
        sa.select(table.c.id, table.c.layout, table.c.shards, table.c.wanted, table.c.moved).order_by(table.c.id)
    )
    return {block: Layout(*row) for block, *row in rows}


async def request(connection: AsyncConnection, shards: int, block: int = 0) -> Layout:
    """Request a number of shards. A change in progress is turned into this one."""
    await create(connection, shards, block)
    layout = await find(connection, block, lock=True)
    if (layout.wanted or layout.shards) == shards:
        return layout
    await connection.execute(table.update().where(table.c.id == block).values(wanted=shards, moved=0))
    return dataclasses.replace(layout, wanted=shards, moved=0)


async def note_moved(connection: AsyncConnection, rows: int, block: int = 0) -> None:
    """Add `rows` to the count of moved rows."""
    await connection.execute(table.update().where(table.c.id == block).values(moved=table.c.moved + rows))


async def replace(connection: AsyncConnection, before: Layout, block: int = 0) -> Layout:
    """Store the layout with the wanted number of shards, under the next generation."""
    after = Layout(before.number + 1, before.wanted)
    values = {"layout": after.number, "shards": after.shards, "wanted": 0, "moved": 0}
    await connection.execute(table.update().where(table.c.id == block).values(values))
    return after


async def delete(connection: AsyncConnection, block: int) -> None:
    """Delete the layout of a number that is removed."""
    await connection.execute(table.delete().where(table.c.id == block))
