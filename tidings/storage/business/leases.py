"""The log of leases: which process owned which shard, under which epoch, from when to when."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

table = sa.Table(
    "shard_leases",
    metadata,
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("owner", types.key(64), nullable=False),
    sa.Column("layout", sa.Integer, nullable=False),
    sa.Column("claimed_at", types.milliseconds(), nullable=False),
    sa.Column("ended_at", types.milliseconds(), nullable=False),
    sa.Column("ending", types.key(16), nullable=False),
    mysql_engine="InnoDB",
)

# Endings. A shard is taken from an owner that was silent, or that restarted under its own name.
RELEASED, TAKEN, RESUMED = "released", "taken", "resumed"

KEPT = 1_000  # of each shard


@dataclasses.dataclass(frozen=True, slots=True)
class Tenure:
    """One owner's time. claimed_at, ended_at: Unix milliseconds of the database's clock; the latter 0 while it lasts.

    From `ended_at` on every commit of this owner is refused.
    """

    shard: int
    epoch: int
    owner: str
    layout: int
    claimed_at: int
    ended_at: int = 0
    ending: str = ""


async def begin(connection: AsyncConnection, shard: int, epoch: int, owner: str, layout: int) -> None:
    """In the transaction that raises the shard's epoch to this one: whoever owned it before does not any more."""
    now = (await connection.execute(sa.select(database_clock.now(connection)))).scalar_one()
    before = sa.and_(table.c.shard == shard, table.c.epoch < epoch, table.c.ended_at == 0)
    ending = sa.case((table.c.owner == owner, RESUMED), else_=TAKEN)
    await connection.execute(table.update().where(before).values(ended_at=now, ending=ending))
    row = Tenure(shard, epoch, owner, layout, now)
    await connection.execute(insert_or_ignore(connection, table), [dataclasses.asdict(row)])
    await connection.execute(table.delete().where(table.c.shard == shard, table.c.epoch <= epoch - KEPT))


async def end(connection: AsyncConnection, shard: int, epoch: int) -> None:
    """In the transaction that gives the shard up."""
    await connection.execute(
        table.update()
        .where(table.c.shard == shard, table.c.epoch == epoch, table.c.ended_at == 0)
        .values(ended_at=database_clock.now(connection), ending=RELEASED)
    )


async def end_all(connection: AsyncConnection) -> None:
    """In a transaction that takes all shards from whoever was silent."""
    over = table.update().where(table.c.ended_at == 0)
    await connection.execute(over.values(ended_at=database_clock.now(connection), ending=TAKEN))


async def list_tenures(connection: AsyncConnection, *, since: int = 0) -> Sequence[Tenure]:
    """Those that were not over at `since` (Unix milliseconds), by shard and epoch."""
    rows = await connection.execute(
        sa.select(table)
        .where(sa.or_(table.c.ended_at == 0, table.c.ended_at >= since))
        .order_by(table.c.shard, table.c.epoch)
    )
    return [Tenure(*row) for row in rows]
