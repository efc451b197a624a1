"""Coreapp processes of the installation, with their start times and heartbeats.

All times are those of the database's clock.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_update

table = metadata.table(
    "coreapp_nodes",
    sa.Column("node", types.key(64), primary_key=True),
    sa.Column("incarnation", types.key(32), nullable=False),
    sa.Column("address", types.key(255), nullable=False),
    sa.Column("started_at", types.milliseconds(), nullable=False),
    sa.Column("heartbeat_at", types.milliseconds(), nullable=False),
    sa.Column("interval_ms", sa.Integer, nullable=False),
    # Equal to `incarnation` if the process runs a release that evaluates the reports of Webapps (see
    # `NodeRecord.evaluates_reports`).
    sa.Column("heeding", types.key(32)),
)


# A process counts as dead after `MISSED` heartbeat intervals and `MARGIN` seconds without a heartbeat.
MISSED, MARGIN = 2.5, 0.5


class ProcessReplaced(Exception):
    """Another process has started under the name of this one."""


@dataclasses.dataclass(frozen=True, slots=True)
class CoreappNode:
    """Coreapp process."""

    name: str
    # Random id, new at each start.
    incarnation: str
    # `host:port` of the process's link.
    address: str
    # Time between heartbeats, seconds.
    interval: float


@dataclasses.dataclass(frozen=True, slots=True)
class NodeRecord:
    """Recorded Coreapp process, live or lost."""

    node: CoreappNode
    # Unix milliseconds.
    started_at: int
    # Unix milliseconds of the last heartbeat.
    heartbeat_at: int
    # Time since the last heartbeat, seconds.
    heartbeat_age: float
    # Time since its start, seconds.
    age: float = math.inf
    # Whether it moves shards away from Coreapps that no Webapp reaches. Releases before revision 0031 do not.
    evaluates_reports: bool = True

    @property
    def is_live(self) -> bool:
        """Return whether the process sends heartbeats."""
        return self.heartbeat_age <= MISSED * self.node.interval + MARGIN


async def find(connection: AsyncConnection, name: str) -> NodeRecord | None:
    """Find the recorded process of this name."""
    return next((member for member in await list_members(connection) if member.node.name == name), None)


async def list_members(connection: AsyncConnection) -> Sequence[NodeRecord]:
    """List all recorded processes, by name. Processes that crashed are included until `delete_lost` deletes them."""
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
            database_clock.now(connection) - columns.started_at,
            columns.heeding,
        ).order_by(columns.node)
    )
    return [
        NodeRecord(
            CoreappNode(name, incarnation, address, interval / 1000),
            started_at,
            heartbeat_at,
            heartbeat_age / 1000,
            float(age) / 1000,
            # A process of an earlier release that takes over a row leaves this column unchanged.
            heeding == incarnation,
        )
        for name, incarnation, address, interval, started_at, heartbeat_at, heartbeat_age, age, heeding in rows
    ]


async def join(connection: AsyncConnection, node: CoreappNode) -> None:
    """Record the start of this process, and replace any other of its name."""
    now = (await connection.execute(sa.select(database_clock.now(connection)))).scalar_one()
    row = {
        "node": node.name,
        "incarnation": node.incarnation,
        "address": node.address,
        "started_at": now,
        "heartbeat_at": now,
        "interval_ms": round(node.interval * 1000),
        "heeding": node.incarnation,
    }
    await connection.execute(insert_or_update(connection, table), [row])


async def beat(connection: AsyncConnection, node: CoreappNode) -> None:
    """Record a heartbeat. Raises `ProcessReplaced`."""
    beaten = await connection.execute(
        table.update()
        .where(table.c.node == node.name, table.c.incarnation == node.incarnation)
        .values(heartbeat_at=database_clock.now(connection))
    )
    if beaten.rowcount == 1:
        return
    if await find(connection, node.name) is not None:
        raise ProcessReplaced(f"another Coreapp has started under the name {node.name}")
    # The row was deleted because the process was silent for too long.
    await join(connection, node)


async def leave(connection: AsyncConnection, node: CoreappNode) -> None:
    """Delete the row of a process that shuts down."""
    await connection.execute(table.delete().where(table.c.node == node.name, table.c.incarnation == node.incarnation))


async def delete_lost(connection: AsyncConnection, heartbeat_timeout: float) -> None:
    """Delete processes that have sent no heartbeat for `heartbeat_timeout` seconds."""
    await connection.execute(
        table.delete().where(table.c.heartbeat_at < database_clock.now(connection) - int(heartbeat_timeout * 1000))
    )
