"""Change from one shard layout to another: the right to make it, and its end.

The process that makes the change owns the number's first shard and keeps all others from owning any of its shards. See
`coreapp/shard/layout_change.py`.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock
from tidings.storage.business import layouts, leases, shard_blocks, shards
from tidings.storage.business.layouts import Layout
from tidings.storage.business.shards import Lease
from tidings.storage.database import insert_or_ignore

_FREE = {"owner": "", "address": "", "heartbeat_at": 0, "successor": ""}


async def begin(connection: AsyncConnection, *, owner: str, heartbeat_timeout: float, block: int = 0) -> Lease | None:
    """Take all shards of a number for a requested change. Returns None while a live process owns one of them, or if
    none is requested.

    From then on every commit of a former owner is refused.

    heartbeat_timeout: seconds without a heartbeat after which an owner counts as gone
    block: shard block of the number
    """
    table, first = shards.table, shard_blocks.first_shard(block)
    ours = shards.of_block(block)
    rows = sa.select(table.c.owner, table.c.epoch, table.c.heartbeat_at).where(ours).order_by(table.c.shard)
    held = (await connection.execute(rows.with_for_update())).all()
    layout = await layouts.find(connection, block)
    if not layout.is_changing or not held:
        return None
    now = (await connection.execute(sa.select(database_clock.now(connection)))).scalar_one()
    if any(row.owner not in ("", owner) and row.heartbeat_at >= now - int(heartbeat_timeout * 1000) for row in held):
        return None
    epoch = max(row.epoch for row in held) + 1
    await connection.execute(table.update().where(ours).values(_FREE | {"epoch": epoch}))
    await connection.execute(table.update().where(table.c.shard == first).values(owner=owner, heartbeat_at=now))
    await leases.end_all(connection, shards.of_block(block, leases.table.c.shard))
    await leases.begin(connection, first, epoch, owner, layout.number)
    return Lease(first, owner, epoch, layout.shards, layout.number)


async def finish(connection: AsyncConnection, lease: Lease, before: Layout) -> Layout | None:
    """Store the new layout, whose shards are free to be claimed. Returns None if another number is wanted by now.

    Raises `LeaseLost`.

    before: layout that the change started from
    """
    await shards.fence(connection, lease)
    block, first = lease.block, lease.first_shard
    now = await layouts.find(connection, block, lock=True)
    if now.wanted != before.wanted:
        return None
    table = shards.table
    ours = shards.of_block(block)
    await connection.execute(table.delete().where(ours, table.c.shard >= first + now.wanted))
    # Higher than every earlier epoch, including those of shards that no longer exist.
    free = {**_FREE, "epoch": lease.epoch + 1, "commits": 0}
    await connection.execute(
        insert_or_ignore(connection, table), [{"shard": first + shard, **free} for shard in range(now.wanted)]
    )
    await connection.execute(table.update().where(ours).values(_FREE | {"epoch": lease.epoch + 1}))
    await leases.end(connection, lease.shard, lease.epoch)
    return await layouts.replace(connection, now, block)
