"""Audits of replays and purges, and recorded Webapps, for the console."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock
from tidings.storage.business import callback_purges, callback_replays, webapp_nodes

# Replayed callbacks that the audit reads at most.
SCANNED = 5_000


@dataclasses.dataclass(frozen=True, slots=True)
class AuditEntry:
    """Replay or purge of callbacks in one shard."""

    # Unix milliseconds.
    at: int
    shard: int
    # User who requested it.
    by: str
    count: int
    # Selection of a purge; empty for a replay.
    choice: str = ""

    @property
    def is_purge(self) -> bool:
        return bool(self.choice)


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


async def list_audit(connection: AsyncConnection, shards: Sequence[int], *, limit: int) -> Sequence[AuditEntry]:
    """List the latest replays and purges of callbacks in these shards, newest first.

    Replays of one user at one time in one shard are one entry. At most `SCANNED` replayed callbacks are read.
    """
    replays = callback_replays.table
    query = sa.select(replays.c.at, replays.c.shard, replays.c.by).where(replays.c.shard.in_(shards))
    found = await connection.execute(query.order_by(replays.c.at.desc()).limit(SCANNED))
    counted = collections.Counter((at, shard, by) for at, shard, by in found)
    entries = [AuditEntry(at, shard, by, count) for (at, shard, by), count in counted.items()]
    purges = await callback_purges.list_latest(connection, shards, limit)
    entries += [AuditEntry(row.at, row.shard, row.by, row.deleted, row.choice or "all") for row in purges]
    return sorted(entries, key=lambda entry: -entry.at)[:limit]


async def list_webapps(connection: AsyncConnection) -> Sequence[WebappEntry]:
    """List all recorded Webapps, by name."""
    columns = webapp_nodes.table.c
    now = database_clock.now(connection)
    query = sa.select(columns.node, now - columns.started_at, now - columns.heartbeat_at).order_by(columns.node)
    return [
        WebappEntry(node, float(age) / 1000, float(beat) / 1000) for node, age, beat in await connection.execute(query)
    ]
