"""Pages of an audit table of callbacks. Rows are ordered by time, and by `key` within the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.database import execute_paged
from tidings.storage.row_lists import any_row_of, row_list


async def list_after(
    connection: AsyncConnection, table: sa.Table, key: str, after: tuple[int, int | str], limit: int
) -> Sequence[tuple[Any, ...]]:
    """List a page of whole rows, oldest first, starting after the row with this time and key."""
    own, (at, last) = table.c[key], after
    query = (
        sa.select(table)
        .where(sa.or_(table.c.at > at, sa.and_(table.c.at == at, own > last)))
        .order_by(table.c.at, own)
        .limit(limit)
    )
    return [tuple(row) for row in await connection.execute(query)]


async def delete_before(connection: AsyncConnection, table: sa.Table, key: str, before: int, limit: int) -> int:
    """Delete at most `limit` rows older than `before` (Unix milliseconds). Returns the number deleted."""
    query = sa.select(table.c.at, table.c[key]).where(table.c.at < before).order_by(table.c.at).limit(limit)
    found = [tuple(row) for row in await connection.execute(query)]
    delete = table.delete().where(any_row_of("rows", table.c.at, table.c[key]))
    await execute_paged(connection, delete, "rows", found, as_list=row_list)
    return len(found)
