"""History of leases: the owner of each shard, with its epoch and the start and end of its ownership."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows

# Reasons for the end of a lease. Taken: the owner sent no heartbeats. Resumed: it restarted under its own name.
RELEASED, TAKEN, RESUMED = "released", "taken", "resumed"

# Rows kept per shard.
KEPT = 1_000


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Ownership of a shard under one epoch. Once it has ended, every commit of this owner is refused."""

    shard: int
    epoch: Annotated[int, sa.BigInteger]
    owner: Annotated[str, types.key(64)]
    # Number of the shard layout at the time.
    layout: int
    # Unix milliseconds of the database's clock.
    claimed_at: types.UnixMilliseconds
    # Unix milliseconds of the database's clock; 0 while the lease lasts.
    ended_at: types.UnixMilliseconds = 0
    # `RELEASED`, `TAKEN` or `RESUMED`; empty while the lease lasts.
    ending: Annotated[str, types.key(16)] = ""


table = metadata.table_of(LeaseRecord, "shard_leases", key=("shard", "epoch"))


async def begin(connection: AsyncConnection, shard: int, epoch: int, owner: str, layout: int) -> None:
    """Record a new lease and end the one before it, in the transaction that raises the shard's epoch."""
    now = (await connection.execute(sa.select(database_clock.now(connection)))).scalar_one()
    before = sa.and_(table.c.shard == shard, table.c.epoch < epoch, table.c.ended_at == 0)
    ending = sa.case((table.c.owner == owner, RESUMED), else_=TAKEN)
    await connection.execute(table.update().where(before).values(ended_at=now, ending=ending))
    await add_rows(connection, table, [LeaseRecord(shard, epoch, owner, layout, now)])
    await connection.execute(table.delete().where(table.c.shard == shard, table.c.epoch <= epoch - KEPT))


async def end(connection: AsyncConnection, shard: int, epoch: int) -> None:
    """Record the end of a lease, in the transaction that releases the shard."""
    await connection.execute(
        table.update()
        .where(table.c.shard == shard, table.c.epoch == epoch, table.c.ended_at == 0)
        .values(ended_at=database_clock.now(connection), ending=RELEASED)
    )


async def end_all(connection: AsyncConnection, of_shards: sa.ColumnElement[bool]) -> None:
    """Record the end of the leases of these shards, in the transaction that takes them from owners without
    heartbeats.
    """
    over = table.update().where(of_shards, table.c.ended_at == 0)
    await connection.execute(over.values(ended_at=database_clock.now(connection), ending=TAKEN))


async def delete(connection: AsyncConnection, of_shards: sa.ColumnElement[bool]) -> None:
    """Delete the history of these shards, which are removed with their number."""
    await connection.execute(table.delete().where(of_shards))
