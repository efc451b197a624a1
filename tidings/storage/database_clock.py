"""Clock of the database, by which all processes of an installation measure the age of each other's heartbeats."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection


def now(connection: AsyncConnection) -> sa.ColumnElement[int]:
    """Return an expression for the time at the start of the statement, Unix milliseconds."""
    if connection.dialect.name == "sqlite":
        return sa.literal_column("CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)", sa.BigInteger)
    return sa.literal_column("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000", sa.BigInteger)


async def read(connection: AsyncConnection) -> int:
    """Return the present time, Unix milliseconds."""
    return int((await connection.execute(sa.select(now(connection)))).scalar_one())
