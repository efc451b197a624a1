"""Shards and their leases: who owns which part of the recipients, under which epoch.

A lease is a row. Whoever raises its `epoch` owns it; every transaction of the owner counts up its `commits` where the
epoch is still its own, so an owner that was paused past its lease can write nothing, on a cluster either. All times
are the database's own, but for an owner that cannot reach the database: by its own monotonic clock it leaves when its
lease has run out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

Value = TypeVar("Value")

table = sa.Table(
    "shards",
    metadata,
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("owner", types.key(64), nullable=False),
    sa.Column("address", types.key(255), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("heartbeat_at", types.milliseconds(), nullable=False),
    # Of those who have owned it: what `fence` writes.
    sa.Column("commits", sa.BigInteger, nullable=False, server_default="0"),
    mysql_engine="InnoDB",
)


class LeaseLost(Exception):
    """Another owner has taken the shard: stop, drop what is in memory, and stand by."""


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """The right to write for one shard, as long as the row still has this epoch."""

    shard: int
    owner: str
    epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a shard. `address` is `host:port` of the owner's link for Webapps."""

    shard: int
    node: str
    address: str
    epoch: int


async def create_shards(connection: AsyncConnection, count: int) -> None:
    """Make the rows of `count` shards that nobody owns yet; existing rows stay as they are."""
    free = {"owner": "", "address": "", "epoch": 0, "heartbeat_at": 0, "commits": 0}
    await connection.execute(insert_or_ignore(connection, table), [{"shard": n, **free} for n in range(count)])


async def claim(connection: AsyncConnection, shard: int, *, owner: str, address: str, silence: float) -> Lease | None:
    """Take a shard that is free, one's own, or whose owner has been silent for `silence` seconds; `None` otherwise."""
    await _lock(connection, shard)
    now = _database_now(connection)
    taken = await connection.execute(
        table.update()
        .where(
            table.c.shard == shard,
            sa.or_(
                table.c.owner == "",
                table.c.owner == owner,
                table.c.heartbeat_at < now - int(silence * 1000),
            ),
        )
        .values(owner=owner, address=address, epoch=table.c.epoch + 1, heartbeat_at=now)
    )
    if taken.rowcount != 1:
        return None
    epoch = (await connection.execute(sa.select(table.c.epoch).where(table.c.shard == shard))).scalar_one()
    return Lease(shard, owner, epoch)


async def renew(connection: AsyncConnection, lease: Lease) -> None:
    """The owner's heartbeat. Raises `LeaseLost`."""
    await _lock(connection, lease.shard)
    renewed = await connection.execute(
        table.update()
        .where(table.c.shard == lease.shard, table.c.epoch == lease.epoch)
        .values(heartbeat_at=_database_now(connection))
    )
    if renewed.rowcount != 1:
        raise LeaseLost(f"shard {lease.shard} is no longer owned under epoch {lease.epoch}")


async def release(connection: AsyncConnection, lease: Lease) -> None:
    """Give the shard up at once; nothing happens when it was lost already."""
    await connection.execute(
        table.update()
        .where(table.c.shard == lease.shard, table.c.epoch == lease.epoch)
        .values(owner="", address="", heartbeat_at=0)
    )


_OWNED = sa.and_(table.c.shard == sa.bindparam("of_shard"), table.c.epoch == sa.bindparam("under_epoch"))
_FENCE = table.update().where(_OWNED).values(commits=table.c.commits + 1)
# One who writes is alone there, from the begin of the transaction on.
_FENCE_OF_SQLITE = sa.select(table.c.epoch).where(_OWNED)


async def fence(connection: AsyncConnection, lease: Lease) -> None:
    """First statement of every transaction that writes for a shard. Raises `LeaseLost`.

    The row stays locked until the commit, so a takeover waits for this transaction or comes before it. On a cluster
    that certifies what was written (Galera), of two nodes' transactions one is refused (decision 23): the later one,
    also when it was begun by a node that has yet to apply the earlier one.
    """
    parameters = {"of_shard": lease.shard, "under_epoch": lease.epoch}
    if connection.dialect.name == "sqlite":
        owned = (await connection.execute(_FENCE_OF_SQLITE, parameters)).first() is not None
    else:
        owned = (await connection.execute(_FENCE, parameters)).rowcount == 1
    if not owned:
        raise LeaseLost(f"shard {lease.shard} is no longer owned under epoch {lease.epoch}")


def fenced(
    lease: Lease, work: Callable[[AsyncConnection], Awaitable[Value]]
) -> Callable[[AsyncConnection], Awaitable[Value]]:
    """`work` as the rest of a transaction that begins with `fence`."""

    async def transaction(connection: AsyncConnection) -> Value:
        await fence(connection, lease)
        return await work(connection)

    return transaction


async def list_owners(connection: AsyncConnection) -> Sequence[Owner]:
    """Every shard in order; one that nobody owns has an empty node and address."""
    rows = await connection.execute(
        sa.select(table.c.shard, table.c.owner, table.c.address, table.c.epoch).order_by(table.c.shard)
    )
    return [Owner(shard, owner, address, epoch) for shard, owner, address, epoch in rows]


async def list_silences(connection: AsyncConnection) -> Mapping[int, float]:
    """Seconds since the last heartbeat, by the database's clock, of each shard."""
    now = _database_now(connection)
    rows = await connection.execute(sa.select(table.c.shard, now - table.c.heartbeat_at))
    return {shard: float(milliseconds) / 1000 for shard, milliseconds in rows}


async def _lock(connection: AsyncConnection, shard: int) -> None:
    """Wait for the row. A statement's time is that of its begin: one that then waited would write an old heartbeat."""
    await connection.execute(sa.select(table.c.shard).where(table.c.shard == shard).with_for_update())


def _database_now(connection: AsyncConnection) -> sa.ColumnElement[int]:
    if connection.dialect.name == "sqlite":
        return sa.literal_column("CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)", sa.BigInteger)
    return sa.literal_column("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000", sa.BigInteger)
