"""Webapp processes of the installation. Each renews its row while it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business.tables import metadata

table = metadata.table(
    "webapp_nodes",
    sa.Column("incarnation", types.key(32), primary_key=True),
    sa.Column("node", types.key(255), nullable=False),
    sa.Column("started_at", types.milliseconds(), nullable=False),
    sa.Column("heartbeat_at", types.milliseconds(), nullable=False),
)


# Time without a heartbeat after which a Webapp counts as gone, seconds.
SILENCE = 15.0


@dataclasses.dataclass(frozen=True, slots=True)
class WebappNode:
    """Webapp process."""

    # Random id, new at each start.
    incarnation: str
    # `host:port`, for display.
    node: str


async def renew(connection: AsyncConnection, webapp: WebappNode, *, delete_after: float) -> None:
    """Record the heartbeat of a process. Without a row, add one and delete rows older than `delete_after` seconds."""
    now = database_clock.now(connection)
    renewed = await connection.execute(
        table.update().where(table.c.incarnation == webapp.incarnation).values(heartbeat_at=now)
    )
    if renewed.rowcount == 1:
        return
    await connection.execute(table.delete().where(table.c.heartbeat_at < now - int(delete_after * 1000)))
    await connection.execute(
        table.insert().values(incarnation=webapp.incarnation, node=webapp.node, started_at=now, heartbeat_at=now)
    )


async def list_live(connection: AsyncConnection, *, heartbeat_timeout: float) -> Sequence[WebappNode]:
    """List the Webapps that sent a heartbeat in the last `heartbeat_timeout` seconds, by name."""
    rows = await connection.execute(
        sa.select(table.c.incarnation, table.c.node)
        .where(table.c.heartbeat_at >= database_clock.now(connection) - int(heartbeat_timeout * 1000))
        .order_by(table.c.node, table.c.incarnation)
    )
    return [WebappNode(*row) for row in rows]


async def remove(connection: AsyncConnection, incarnation: str) -> None:
    """Delete the row of a process that ends."""
    await connection.execute(table.delete().where(table.c.incarnation == incarnation))
