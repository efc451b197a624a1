"""Reports of Webapps: one row per Coreapp that a Webapp does not reach, deleted when it is reached again.

All times are those of the database's clock. The rows of a Webapp count while its heartbeat is recent (`webapp_nodes`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business import webapp_nodes
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

table = metadata.table(
    "webapp_unreached",
    # The Webapp's, as in `webapp_nodes`.
    sa.Column("incarnation", types.key(32), primary_key=True),
    # `host:port` of the Coreapp's link.
    sa.Column("address", types.key(255), primary_key=True),
    # Time of the first failed call, Unix milliseconds.
    sa.Column("since", types.milliseconds(), nullable=False),
)


# Address in the row of a Webapp that has started and has made no report.
_UNDECIDED = ""


@dataclasses.dataclass(frozen=True, slots=True)
class UnreachedReport:
    """Report of one live Webapp."""

    node: str  # name of the Webapp, for operators
    # by address of each Coreapp that is not reached: seconds since the first failed call
    unreached: Mapping[str, float]


async def record_start(connection: AsyncConnection, incarnation: str) -> None:
    """Record that a Webapp starts. It is not listed before its first report, even if it never makes one."""
    row = {"incarnation": incarnation, "address": _UNDECIDED, "since": await _now(connection)}
    await connection.execute(insert_or_ignore(connection, table), [row])


async def record(
    connection: AsyncConnection,
    incarnation: str,
    unreached: Mapping[str, float],
    *,
    ended: Collection[str] = (),
    never_reached: Collection[str] = (),
) -> None:
    """Replace the rows of a Webapp. An existing row of an address in `unreached` keeps its time.

    unreached: seconds since the first failed call, by address
    ended: addresses that were reached after their rows were written; their rows are replaced
    never_reached: addresses in `unreached` that were not reached since the Webapp's start; a new row takes over the
        time that the latest process of the same name reported
    """
    own = table.c.incarnation == incarnation
    kept = sorted(unreached.keys() - set(ended))
    await connection.execute(table.delete().where(own, table.c.address.not_in(kept)))
    if not unreached:
        return
    now = await _now(connection)
    times = {address: now - round(seconds * 1000) for address, seconds in sorted(unreached.items())}
    if never_reached:
        before = await _list_before(connection, incarnation)
        times |= {address: min(times[address], before[address]) for address in never_reached if address in before}
    rows = [{"incarnation": incarnation, "address": address, "since": since} for address, since in times.items()]
    await connection.execute(insert_or_ignore(connection, table), rows)


async def list_reports(connection: AsyncConnection) -> Sequence[UnreachedReport]:
    """List the reports of all live Webapps, by name.

    A Webapp of an earlier release writes no rows, so its report is empty: it counts as reaching every Coreapp. A Webapp
    that has made no report since its start is not listed: nothing is known of its links.
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
    return [UnreachedReport(node, unreached) for node, unreached in found.values() if _UNDECIDED not in unreached]


async def delete_dead(connection: AsyncConnection) -> None:
    """Delete the rows of Webapps that are no longer listed in `webapp_nodes`."""
    listed = sa.select(webapp_nodes.table.c.incarnation)
    await connection.execute(table.delete().where(table.c.incarnation.not_in(listed)))


async def _now(connection: AsyncConnection) -> int:
    return int((await connection.execute(sa.select(database_clock.now(connection)))).scalar_one())


async def _list_before(connection: AsyncConnection, incarnation: str) -> Mapping[str, int]:
    """Return the times in the report of the process that a Webapp replaces, by address.

    This is the one of the same name that started last, among those that have reported and whose reports still count.
    """
    live, own = webapp_nodes.table, webapp_nodes.table.alias()
    rows = await connection.execute(
        sa.select(live.c.incarnation, table.c.address, table.c.since)
        .select_from(live.outerjoin(table, table.c.incarnation == live.c.incarnation))
        .where(
            live.c.node == sa.select(own.c.node).where(own.c.incarnation == incarnation).scalar_subquery(),
            live.c.incarnation != incarnation,
            live.c.heartbeat_at >= database_clock.now(connection) - int(webapp_nodes.SILENCE * 1000),
        )
        .order_by(live.c.started_at.desc(), live.c.incarnation)
    )
    found: dict[str, dict[str, int]] = {}
    for other, address, since in rows:
        times = found.setdefault(other, {})
        if address is not None:
            times[address] = since
    return next((times for times in found.values() if _UNDECIDED not in times), {})
