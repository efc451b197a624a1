"""The Webapps of the installation: a row for each process, which it renews while it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business.tables import metadata

table = sa.Table(
    "webapp_nodes",
    metadata,
    sa.Column("incarnation", types.key(32), primary_key=True),
    sa.Column("node", types.key(255), nullable=False),
    sa.Column("started_at", types.milliseconds(), nullable=False),
    sa.Column("heartbeat_at", types.milliseconds(), nullable=False),
    mysql_engine="InnoDB",
)


# Seconds of silence after which a Webapp counts as gone.
SILENCE = 15.0


@dataclasses.dataclass(frozen=True, slots=True)
class WebappNode:
    """One process. incarnation: random, of this start of it; node: for people, `host:port`."""

    incarnation: str
    node: str


async def renew(connection: AsyncConnection, webapp: WebappNode, *, forget: float) -> None:
    """The heartbeat of a process, whose row is made when it is not there. Rows as old as `forget` seconds go."""
    now = database_clock.now(connection)
    renewed = await connection.execute(
        table.update().where(table.c.incarnation == webapp.incarnation).values(heartbeat_at=now)
    )
    if renewed.rowcount == 1:
        return
    await connection.execute(table.delete().where(table.c.heartbeat_at < now - int(forget * 1000)))
    await connection.execute(
        table.insert().values(incarnation=webapp.incarnation, node=webapp.node, started_at=now, heartbeat_at=now)
    )


async def list_live(connection: AsyncConnection, *, silence: float) -> Sequence[WebappNode]:
    """Those that have not been silent for `silence` seconds, by name."""
    rows = await connection.execute(
        sa.select(table.c.incarnation, table.c.node)
        .where(table.c.heartbeat_at >= database_clock.now(connection) - int(silence * 1000))
        .order_by(table.c.node, table.c.incarnation)
    )
    return [WebappNode(*row) for row in rows]


async def remove(connection: AsyncConnection, incarnation: str) -> None:
    """A process ends."""
    await connection.execute(table.delete().where(table.c.incarnation == incarnation))
