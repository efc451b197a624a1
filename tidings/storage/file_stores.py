"""File stores recorded in a database: the directory or bucket that holds the files named by its rows.

The business and the network family each have this table. One row stands for the database itself; concurrent starts
lock it.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import add_rows

# Name of the row that stands for the database itself.
DATABASE = "database"


@dataclasses.dataclass(frozen=True, slots=True)
class FileStoreRow:
    """Recorded store."""

    # "media", "blobs" or `DATABASE`.
    name: Annotated[str, types.key(16)]
    # Random id, which the marker file in the store also contains.
    marker: Annotated[str, types.key(64)]
    recorded_at: types.UnixMilliseconds


def define(metadata: types.TableFamily) -> sa.Table:
    """Return the table, defined in the metadata of one family."""
    return metadata.table_of(FileStoreRow, "file_stores", key=("name",))


_table = define(types.TableFamily())


async def find(connection: AsyncConnection, name: str, *, lock: bool = False) -> FileStoreRow | None:
    """Find the recorded store of a name. With `lock`, the row does not change until the transaction ends."""
    query = sa.select(_table).where(_table.c.name == name)
    row = (await connection.execute(query.with_for_update() if lock else query)).first()
    return FileStoreRow(*row) if row is not None else None


async def add(connection: AsyncConnection, store: FileStoreRow) -> None:
    """Record a store, unless a store of this name is recorded."""
    await add_rows(connection, _table, [store])


async def replace(connection: AsyncConnection, store: FileStoreRow) -> None:
    """Replace the recorded store of this name."""
    values = dataclasses.asdict(store)
    await connection.execute(_table.update().where(_table.c.name == values.pop("name")).values(**values))
