"""File stores recorded in a database: which directory or bucket holds the files that its rows name.

Business and network each have this table in their own schema. One row stands for the database itself; it is what
concurrent starts lock.
"""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import insert_or_ignore

# The row of the database itself.
DATABASE = "database"


@dataclasses.dataclass(frozen=True, slots=True)
class FileStore:
    """name: `media`, `blobs`, or `DATABASE`; marker: random id, also in the marker file; recorded_at: Unix
    milliseconds."""

    name: str
    marker: str
    recorded_at: int


def define(metadata: sa.MetaData) -> sa.Table:
    """The table, as one of a family's."""
    return sa.Table(
        "file_stores",
        metadata,
        sa.Column("name", types.key(16), primary_key=True),
        sa.Column("marker", types.key(64), nullable=False),
        sa.Column("recorded_at", types.milliseconds(), nullable=False),
        mysql_engine="InnoDB",
    )


_table = define(sa.MetaData())


async def find(connection: AsyncConnection, name: str, *, lock: bool = False) -> FileStore | None:
    """One recorded store. lock: the row does not change until the transaction ends."""
    query = sa.select(_table).where(_table.c.name == name)
    row = (await connection.execute(query.with_for_update() if lock else query)).first()
    return FileStore(*row) if row is not None else None


async def add(connection: AsyncConnection, store: FileStore) -> None:
    """Record a store, unless one of this name is recorded."""
    await connection.execute(insert_or_ignore(connection, _table), [dataclasses.asdict(store)])


async def replace(connection: AsyncConnection, store: FileStore) -> None:
    """Record another store in the place of one that is recorded."""
    values = dataclasses.asdict(store)
    await connection.execute(_table.update().where(_table.c.name == values.pop("name")).values(**values))
