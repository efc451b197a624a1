"""Positions that a fleet has reached in its inbox and outbox, and the last shown position of the inbox."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.database import insert_or_update
from tidings.storage.handset.tables import inbox, outbox, progress, sent


async def save_shown(connection: AsyncConnection, fleet: str, position: int) -> None:
    """Record that all messages of this fleet up to `position` have been shown."""
    statement = insert_or_update(connection, progress, ("fleet",), ("shown",))
    await connection.execute(statement, [{"fleet": fleet, "shown": position}])


async def find(connection: AsyncConnection, fleet: str) -> tuple[int, int, int]:
    """Return the last positions of a fleet's inbox, of its sent messages and of its shown messages; 0 for none."""
    row = (
        await connection.execute(
            sa.select(
                sa.select(sa.func.max(inbox.c.position)).where(inbox.c.fleet == fleet).scalar_subquery(),
                sa.select(sa.func.max(outbox.c.position)).where(outbox.c.fleet == fleet).scalar_subquery(),
                sa.select(sa.func.max(sent.c.position)).where(sent.c.fleet == fleet).scalar_subquery(),
                sa.select(progress.c.shown).where(progress.c.fleet == fleet).scalar_subquery(),
            )
        )
    ).one()
    return row[0] or 0, max(row[1] or 0, row[2] or 0), row[3] or 0
