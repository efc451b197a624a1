"""Ids of the keys of an installation, by which a process with a wrong key is recognised at start."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows

MASTER = "master"
SETTINGS = "settings"
# Keys under which nothing is sealed. Their rows show only which key the processes use.
LINK = "link"
TOKENS = "tokens"


@dataclasses.dataclass(frozen=True, slots=True)
class KeyCheck:
    """Current key of one kind."""

    # Kind of key, one of the above.
    name: Annotated[str, types.key(16)]
    # Id of the current key, or check value of a link or token key.
    key_id: Annotated[str, types.key(16)]
    # Id of the key before it while that may still be needed; empty otherwise.
    previous: Annotated[str, types.key(16)] = ""
    changed_at: types.UnixMilliseconds = 0


table = metadata.table_of(KeyCheck, "key_checks", key=("name",))


async def find(connection: AsyncConnection, name: str, *, lock: bool = False) -> KeyCheck | None:
    """Find the key of one kind; None in a new database. With `lock`, it does not change until the transaction ends."""
    query = sa.select(table).where(table.c.name == name)
    row = (await connection.execute(query.with_for_update() if lock else query)).first()
    return KeyCheck(*row) if row is not None else None


async def add(connection: AsyncConnection, check: KeyCheck) -> None:
    """Record the current key of a kind, unless one is recorded."""
    await add_rows(connection, table, [check])


async def replace(connection: AsyncConnection, check: KeyCheck) -> None:
    """Replace the recorded key of a kind."""
    values = dataclasses.asdict(check)
    await connection.execute(table.update().where(table.c.name == values.pop("name")).values(**values))
