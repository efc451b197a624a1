"""Reads the history of leases, which the product only writes: operators query its table."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from tidings.storage.business import leases
from tidings.storage.database import Connection


async def list_records(connection: Connection) -> Sequence[leases.LeaseRecord]:
    """List all leases, by shard and epoch."""
    table = leases.table
    rows = await connection.execute(sa.select(table).order_by(table.c.shard, table.c.epoch))
    return [leases.LeaseRecord(*row) for row in rows]
