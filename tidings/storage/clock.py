"""The database's own clock: the one that processes on different machines agree on."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection


def now(connection: AsyncConnection) -> sa.ColumnElement[int]:
    """Unix milliseconds when the statement began, as an expression in it."""
    if connection.dialect.name == "sqlite":
        return sa.literal_column("CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)", sa.BigInteger)
    return sa.literal_column("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000", sa.BigInteger)
