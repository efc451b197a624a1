"""Shards and their leases: who owns which part of the recipients, under which epoch.

A lease is a row. Whoever raises its `epoch` owns it; every transaction of the owner counts up its `commits` where the
epoch is still its own, so an owner that was paused past its lease can write nothing, on a cluster either. All times
are the database's own, but for an owner that cannot reach the database: by its own monotonic clock it leaves when its
lease has run out.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import sqlalchemy as sa
from prometheus_client import Counter
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business import layouts, leases
from tidings.storage.business.layouts import Layout
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore
from tidings.storage.rows import write

log = logging.getLogger(__name__)

LATE = Counter("tidings_shard_late_commits_total", "Commits refused because the shard has another owner", ["shard"])

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
    # Whom the last owner has given it up for; empty once somebody owns it.
    sa.Column("successor", types.key(64), nullable=False, server_default=""),
    mysql_engine="InnoDB",
)


class LeaseLost(Exception):
    """Another owner has taken the shard: stop, drop what is in memory, and stand by."""


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """The right to write for one shard of so many, as long as the row still has this epoch.

    layout: in which there are so many.
    """

    shard: int
    owner: str
    epoch: int
    shards: int = 1
    layout: int = 0

    @property
    def is_first(self) -> bool:
        """Is it that of the first shard, whose owner does what is done once for all?"""
        return self.shard == 0


@dataclasses.dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a shard. `address` is `host:port` of the owner's link for Webapps."""

    shard: int
    node: str
    address: str
    epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """A shard as its row has it. owner: empty for one that nobody owns, `successor` is whom it was given up for then;
    silence: seconds since the owner's last sign of life."""

    shard: int
    owner: str
    successor: str
    silence: float


async def create_shards(connection: AsyncConnection, count: int) -> Layout:
    """Make the rows of `count` shards that nobody owns yet; where there is a layout already, that one counts."""
    layout = await layouts.create(connection, count)
    free = {"owner": "", "address": "", "epoch": 0, "heartbeat_at": 0, "commits": 0, "successor": ""}
    rows = [{"shard": n, **free} for n in range(layout.shards)]
    await connection.execute(insert_or_ignore(connection, table), rows)
    return layout


async def claim(connection: AsyncConnection, shard: int, *, owner: str, address: str, silence: float) -> Lease | None:
    """Take a shard that is free, one's own, or whose owner has been silent for `silence` seconds; `None` otherwise, and
    while there are to be more shards or fewer."""
    await _lock(connection, shard)
    layout = await layouts.find(connection)
    if layout.is_changing:
        return None
    now = database_clock.now(connection)
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
        .values(owner=owner, address=address, epoch=table.c.epoch + 1, heartbeat_at=now, successor="")
    )
    if taken.rowcount != 1:
        return None
    epoch = (await connection.execute(sa.select(table.c.epoch).where(table.c.shard == shard))).scalar_one()
    await leases.begin(connection, shard, epoch, owner, layout.number)
    return Lease(shard, owner, epoch, layout.shards, layout.number)


async def renew(connection: AsyncConnection, lease: Lease) -> None:
    """The owner's heartbeat. Raises `LeaseLost`."""
    await _lock(connection, lease.shard)
    renewed = await connection.execute(
        table.update()
        .where(table.c.shard == lease.shard, table.c.epoch == lease.epoch)
        .values(heartbeat_at=database_clock.now(connection))
    )
    if renewed.rowcount != 1:
        raise LeaseLost(f"shard {lease.shard} is no longer owned under epoch {lease.epoch}")


async def release(connection: AsyncConnection, lease: Lease, *, successor: str = "") -> None:
    """Give the shard up at once, for a successor who waits for it; nothing happens when it was lost already."""
    await connection.execute(
        table.update()
        .where(table.c.shard == lease.shard, table.c.epoch == lease.epoch)
        .values(owner="", address="", heartbeat_at=0, successor=successor)
    )
    await leases.end(connection, lease.shard, lease.epoch)


async def expel_others(connection: AsyncConnection, lease: Lease) -> None:
    """Whoever owns another shard has to claim it again before it commits anything: what it knows of the account is out
    of date. Part of a transaction that begins with `fence`.

    So has whoever is claiming one that is free: as its row is written, too, the claim waits for this transaction, and
    on a cluster one of the two is refused.
    """
    await connection.execute(table.update().where(table.c.shard != lease.shard).values(epoch=table.c.epoch + 1))


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

    async def check(_: AsyncConnection, owned: int) -> None:
        if owned != 1:
            raise _lost(lease)

    if connection.dialect.name == "sqlite":
        await check(connection, len((await connection.execute(_FENCE_OF_SQLITE, parameters)).all()))
    else:
        await write(connection, _FENCE, parameters, check)


def _lost(lease: Lease) -> LeaseLost:
    LATE.labels(lease.shard).inc()
    log.warning("lease.late_commit", extra={"shard": lease.shard, "epoch": lease.epoch, "owner": lease.owner})
    return LeaseLost(f"shard {lease.shard} is no longer owned under epoch {lease.epoch}")


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
    now = database_clock.now(connection)
    rows = await connection.execute(sa.select(table.c.shard, now - table.c.heartbeat_at))
    return {shard: float(milliseconds) / 1000 for shard, milliseconds in rows}


async def list_standings(connection: AsyncConnection) -> Sequence[Standing]:
    """Every shard in order."""
    silence = database_clock.now(connection) - table.c.heartbeat_at
    rows = await connection.execute(
        sa.select(table.c.shard, table.c.owner, table.c.successor, silence).order_by(table.c.shard)
    )
    return [Standing(shard, owner, successor, silent / 1000) for shard, owner, successor, silent in rows]


async def _lock(connection: AsyncConnection, shard: int) -> None:
    """Wait for the row. A statement's time is that of its begin: one that then waited would write an old heartbeat."""
    await connection.execute(sa.select(table.c.shard).where(table.c.shard == shard).with_for_update())
