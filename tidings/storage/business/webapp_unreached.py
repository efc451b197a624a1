"""Reports of Webapps: one row per Coreapp that a Webapp does not reach, deleted when it is reached again.

All times are those of the database's clock. The rows of a Webapp count while its heartbeat is recent (`webapp_nodes`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business import webapp_nodes
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

table = sa.Table(
    "webapp_unreached",
    metadata,
    # The Webapp's, as in `webapp_nodes`.
    sa.Column("incarnation", types.key(32), primary_key=True),
    # `host:port` of the Coreapp's link.
    sa.Column("address", types.key(255), primary_key=True),
    # Time of the first failed call, Unix milliseconds.
    sa.Column("since", types.milliseconds(), nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class UnreachedReport:
    """Report of one live Webapp."""

    node: str  # name of the Webapp, for operators
    # by address of each Coreapp that is not reached: seconds since the first failed call
    unreached: Mapping[str, float]


async def record(connection: AsyncConnection, incarnation: str, unreached: Mapping[str, float]) -> None:
    """Replace the rows of a Webapp. An existing row of an address in `unreached` keeps its time.

    unreached: seconds since the first failed call, by address.
    """
    own = table.c.incarnation == incarnation
    await connection.execute(table.delete().where(own, table.c.address.not_in(sorted(unreached))))
    if not unreached:
        return
    now = (await connection.execute(sa.select(database_clock.now(connection)))).scalar_one()
    rows = [
        {"incarnation": incarnation, "address": address, "since": now - round(seconds * 1000)}
        for address, seconds in sorted(unreached.items())
    ]
    await connection.execute(insert_or_ignore(connection, table), rows)


async def list_reports(connection: AsyncConnection) -> Sequence[UnreachedReport]:
    """List the reports of all live Webapps, by name.

    A Webapp of an earlier release writes no rows, so its report is empty: it counts as reaching every Coreapp.
    """
    now, live = database_clock.now(connection), webapp_nodes.table
    rows = await connection.execute(
        sa.select(live.c.incarnation, live.c.node, table.c.address, now - table.c.since)
        .select_from(live.outerjoin(table, table.c.incarnation == live.c.incarnation))
        .where(live.c.heartbeat_at >= now - int(webapp_nodes.SILENCE * 1000))
        .order_by(live.c.node, live.c.incarnation)
    )
    found: dict[str, tuple[str, dict[str, float]]] = {}
    for incarnation, node, address, milliseconds in rows:
        _, unreached = found.setdefault(incarnation, (node, {}))
        if address is not None:
            unreached[address] = float(milliseconds) / 1000
    return [UnreachedReport(node, unreached) for node, unreached in found.values()]


async def forget_dead(connection: AsyncConnection) -> None:
    """Delete the rows of Webapps that are no longer listed in `webapp_nodes`."""
    listed = sa.select(webapp_nodes.table.c.incarnation)
    await connection.execute(table.delete().where(table.c.incarnation.not_in(listed)))
