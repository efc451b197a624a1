"""Audit of what users did, and recorded Webapps, for the console."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock
from tidings.storage.business import audit_entries, callback_purges, callback_replays, webapp_nodes

# Replayed callbacks that the audit reads.
SCANNED = 5_000
# Actions, as `strings.toml` of the console names them.
REPLAY, PURGE = "replay", "purge"


@dataclasses.dataclass(frozen=True, slots=True)
class AuditEntry:
    """Action of a user: a replay or purge of callbacks in one shard, or another action about a number."""

    # Unix milliseconds.
    at: int
    # `REPLAY`, `PURGE`, or an `audit_entries.AuditAction`.
    action: str
    # User who requested it.
    by: str
    # Selection of a purge, or the subject of another action; empty for a replay.
    about: str = ""
    # Number of callbacks, and their shard. None for other actions.
    count: int | None = None
    shard: int | None = None
    # Whether there may be more callbacks than `count`.
    is_partial: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class AuditPage:
    """Latest entries, newest first."""

    rows: Sequence[AuditEntry]
    # Time until which not all replays are listed, Unix milliseconds; None if all are.
    floor: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class WebappEntry:
    """Recorded Webapp process, live or lost."""

    node: str
    # Seconds since its start, and since its last heartbeat.
    age: float
    heartbeat_age: float

    @property
    def is_live(self) -> bool:
        """Return whether the process sends heartbeats."""
        return self.heartbeat_age <= webapp_nodes.SILENCE


async def list_audit(connection: AsyncConnection, account: str, shards: Sequence[int], *, limit: int) -> AuditPage:
    """List the latest actions about a number, and replays and purges of callbacks in its shards.

    Replays of one user at one time in one shard are one entry. Some `SCANNED` replayed callbacks are read.
    """
    replays, floor = await _list_replays(connection, shards)
    purges = await callback_purges.list_latest(connection, shards, limit)
    others = await audit_entries.list_latest(connection, account, limit=limit)
    rows = [
        *replays,
        *(AuditEntry(row.at, PURGE, row.by, row.choice or "all", row.deleted, row.shard) for row in purges),
        *(AuditEntry(row.at, row.action, row.by, row.subject) for row in others),
    ]
    rows.sort(key=lambda row: -row.at)
    return AuditPage(rows[:limit], floor if len(rows) <= limit or (floor or 0) >= rows[limit - 1].at else None)


async def _list_replays(connection: AsyncConnection, shards: Sequence[int]) -> tuple[list[AuditEntry], int | None]:
    """Return the latest replays, and the floor as in `AuditPage`."""
    table, size = callback_replays.table, max(1, SCANNED // max(1, len(shards)))
    entries: list[AuditEntry] = []
    floor: int | None = None
    for shard in shards:
        query = sa.select(table.c.at, table.c.shard, table.c.by).where(table.c.shard == shard)
        for dialect in ("mysql", "mariadb"):
            query = query.with_hint(table, "FORCE INDEX (callback_replays_by_shard)", dialect)
        rows = [tuple(row) for row in await connection.execute(query.order_by(table.c.at.desc()).limit(size))]
        # Older callbacks of the shard, and others at the last time, were not read.
        end = rows[-1][0] if len(rows) == size else None
        if end is not None:
            floor = max(floor or 0, end)
        entries += [
            AuditEntry(at, REPLAY, by, "", count, shard, is_partial=at == end)
            for (at, _, by), count in collections.Counter(rows).items()
        ]
    return entries, floor


async def list_webapps(connection: AsyncConnection) -> Sequence[WebappEntry]:
    """List all recorded Webapps, by name."""
    columns = webapp_nodes.table.c
    now = database_clock.now(connection)
    query = sa.select(columns.node, now - columns.started_at, now - columns.heartbeat_at).order_by(columns.node)
    return [
        WebappEntry(node, float(age) / 1000, float(beat) / 1000) for node, age, beat in await connection.execute(query)
    ]
