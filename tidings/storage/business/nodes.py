"""Coreapp processes of the installation: who is there, since when, and when each gave its last sign of life.

All times are the database's own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_update

table = sa.Table(
    "coreapp_nodes",
    metadata,
    sa.Column("node", types.key(64), primary_key=True),
    sa.Column("incarnation", types.key(32), nullable=False),
    sa.Column("address", types.key(255), nullable=False),
    sa.Column("started_at", types.milliseconds(), nullable=False),
    sa.Column("heartbeat_at", types.milliseconds(), nullable=False),
    sa.Column("interval_ms", sa.Integer, nullable=False),
    mysql_engine="InnoDB",
)


# Heartbeats that a process may miss before it counts as gone, and seconds besides.
MISSED, MARGIN = 2.5, 0.5


class Replaced(Exception):
    """Another process has the name of this one by now."""


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A process. incarnation: drawn by chance at its start; address: of its link, `host:port`; interval: seconds
    between its heartbeats."""

    name: str
    incarnation: str
    address: str
    interval: float


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A process that has been there. started_at: Unix milliseconds; heartbeat_at: likewise, of its last sign of life;
    silence: seconds since then."""

    node: Node
    started_at: int
    heartbeat_at: int
    silence: float

    @property
    def is_live(self) -> bool:
        """Has it given signs of life lately?"""
        return self.silence <= MISSED * self.node.interval + MARGIN


async def find(connection: AsyncConnection, name: str) -> Member | None:
    """The process of this name that was there last, and did not leave."""
    return next((member for member in await list_members(connection) if member.node.name == name), None)


async def list_members(connection: AsyncConnection) -> Sequence[Member]:
    """All that have not left, by name; those that died without leaving are among them until they are forgotten."""
    columns = table.c
    rows = await connection.execute(
        sa.select(
            columns.node,
            columns.incarnation,
            columns.address,
            columns.interval_ms,
            columns.started_at,
            columns.heartbeat_at,
            database_clock.now(connection) - columns.heartbeat_at,
        ).order_by(columns.node)
    )
    return [
        Member(Node(name, incarnation, address, interval / 1000), started_at, heartbeat_at, silence / 1000)
        for name, incarnation, address, interval, started_at, heartbeat_at, silence in rows
    ]


async def join(connection: AsyncConnection, node: Node) -> None:
    """This process is there from now on, and any other of its name is not."""
    now = (await connection.execute(sa.select(database_clock.now(connection)))).scalar_one()
    row = {
        "node": node.name,
        "incarnation": node.incarnation,
        "address": node.address,
        "started_at": now,
        "heartbeat_at": now,
        "interval_ms": round(node.interval * 1000),
    }
    update = ("incarnation", "address", "started_at", "heartbeat_at", "interval_ms")
    await connection.execute(insert_or_update(connection, table, ("node",), update), [row])


async def beat(connection: AsyncConnection, node: Node) -> None:
    """Give a sign of life. Raises `Replaced`."""
    beaten = await connection.execute(
        table.update()
        .where(table.c.node == node.name, table.c.incarnation == node.incarnation)
        .values(heartbeat_at=database_clock.now(connection))
    )
    if beaten.rowcount == 1:
        return
    if await find(connection, node.name) is not None:
        raise Replaced(f"another Coreapp has started under the name {node.name}")
    # It was silent for so long that it was forgotten.
    await join(connection, node)


async def leave(connection: AsyncConnection, node: Node) -> None:
    """The process stops as planned."""
    await connection.execute(table.delete().where(table.c.node == node.name, table.c.incarnation == node.incarnation))


async def forget_lost(connection: AsyncConnection, silence: float) -> None:
    """Forget those that have been silent for so many seconds."""
    await connection.execute(
        table.delete().where(table.c.heartbeat_at < database_clock.now(connection) - int(silence * 1000))
    )
