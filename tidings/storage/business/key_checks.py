"""Which keys the database is sealed under: their ids, so that a wrong one is recognised at start."""

from __future__ import annotations

import dataclasses

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

MASTER = "master"
SETTINGS = "settings"
# Nothing is sealed under these: what is known of them is which processes use them.
LINK = "link"
TOKENS = "tokens"

table = sa.Table(
    "key_checks",
    metadata,
    sa.Column("name", types.key(16), primary_key=True),
    sa.Column("key_id", types.key(16), nullable=False),
    sa.Column("previous", types.key(16), nullable=False),
    sa.Column("changed_at", types.milliseconds(), nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class KeyCheck:
    """The key of one kind that is current. previous: the one before it while it is still needed, or may be; empty for
    none. changed_at: Unix milliseconds."""

    name: str
    key_id: str
    previous: str = ""
    changed_at: int = 0


async def find(connection: AsyncConnection, name: str, *, lock: bool = False) -> KeyCheck | None:
    """What is known of one kind; nothing in a new database. lock: it does not change until the transaction ends."""
    query = sa.select(table).where(table.c.name == name)
    row = (await connection.execute(query.with_for_update() if lock else query)).first()
    return KeyCheck(*row) if row is not None else None


async def add(connection: AsyncConnection, check: KeyCheck) -> None:
    """Keep what is current, unless something is known already."""
    await connection.execute(insert_or_ignore(connection, table), [dataclasses.asdict(check)])


async def replace(connection: AsyncConnection, check: KeyCheck) -> None:
    """Keep another state of a kind that is known."""
    values = dataclasses.asdict(check)
    await connection.execute(table.update().where(table.c.name == values.pop("name")).values(**values))
