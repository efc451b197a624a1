"""Coreapps that a Webapp does not reach: a row for each, from the first failed call until it is reached again.

All times are the database's own. The rows of a Webapp count while its heartbeat is recent (`webapp_nodes`).
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
    sa.Column("incarnation", types.key(32), primary_key=True),
    sa.Column("address", types.key(255), primary_key=True),
    sa.Column("since", types.milliseconds(), nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What one live Webapp reports. node: its name for people; unreached: seconds since the first failed call, by the
    address of each Coreapp that it does not reach."""

    node: str
    unreached: Mapping[str, float]


async def record(connection: AsyncConnection, incarnation: str, unreached: Mapping[str, float]) -> None:
    """Make the rows of a Webapp those of `unreached`: seconds since the first failed call, by address.

    A row that is there already keeps its time.
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


async def list_reports(connection: AsyncConnection) -> Sequence[Report]:
    """One for each live Webapp, by name. A Webapp of an earlier release reaches every Coreapp as far as this tells."""
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
    return [Report(node, unreached) for node, unreached in found.values()]


async def forget_dead(connection: AsyncConnection) -> None:
    """Delete the rows of Webapps that are not listed any more."""
    listed = sa.select(webapp_nodes.table.c.incarnation)
    await connection.execute(table.delete().where(table.c.incarnation.not_in(listed)))
