"""Shards and their leases: the owner of each part of the recipients, and its epoch.

A lease is a row. A process becomes the owner by raising its `epoch`. Every transaction of the owner increments
`commits` on the condition that the epoch is still its own. An owner that was paused beyond the end of its lease can
therefore write nothing, on a cluster either. All times are those of the database's clock, with one exception: an owner
that cannot reach the database gives up its lease when it has expired by the process's own monotonic clock.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import sqlalchemy as sa
from prometheus_client import Counter
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import database_clock, types
from tidings.storage.business import layouts, leases, numbers, shard_blocks
from tidings.storage.business.layouts import Layout
from tidings.storage.business.numbers import BusinessNumber
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore
from tidings.storage.rows import write

log = logging.getLogger(__name__)

LATE = Counter("tidings_shard_late_commits_total", "Commits refused because the shard has another owner", ["shard"])

Value = TypeVar("Value")

table = metadata.table(
    "shards",
    sa.Column("shard", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("owner", types.key(64), nullable=False),
    sa.Column("address", types.key(255), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("heartbeat_at", types.milliseconds(), nullable=False),
    # Number of transactions of all owners, incremented by `fence`.
    sa.Column("commits", sa.BigInteger, nullable=False, server_default="0"),
    # Node for which the last owner released the shard; empty while the shard has an owner.
    sa.Column("successor", types.key(64), nullable=False, server_default=""),
)


class LeaseLost(Exception):
    """Another process owns the shard now: stop, drop the state in memory, and become a standby."""


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """Right to write for a shard as long as its row has this epoch."""

    shard: int
    owner: str
    epoch: int
    # Number of shards in the layout.
    shards: int = 1
    # Number of the layout.
    layout: int = 0

    @property
    def block(self) -> int:
        """Return the shard block of the number that the shard belongs to."""
        return shard_blocks.block_of(self.shard)

    @property
    def first_shard(self) -> int:
        """Return the first shard of the same number."""
        return shard_blocks.first_shard(self.block)

    @property
    def partition(self) -> int:
        """Return the partition of the number's device that the shard is, from 0."""
        return self.shard - self.first_shard

    @property
    def is_first(self) -> bool:
        """Return whether this is the lease of the number's first shard, whose owner does what is done once per
        account.
        """
        return self.partition == 0


@dataclasses.dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a shard."""

    shard: int
    # Name of the owner; empty when the shard has none.
    node: str
    # `host:port` of the owner's link for Webapps; empty when the shard has no owner.
    address: str
    epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class ShardState:
    """State of a shard in its row."""

    shard: int
    # Name of the owner; empty when the shard has none.
    owner: str
    # Node for which the shard was released; empty while the shard has an owner.
    successor: str
    # Time since the owner's last heartbeat, seconds.
    heartbeat_age: float


async def create_shards(connection: AsyncConnection, count: int, block: int = 0) -> Layout:
    """Create the rows of `count` shards of a number without owners. If a layout exists, its number of shards is used
    instead.

    block: shard block of the number. Epochs of further numbers start at the present time, above those of a number that
        had the block before.
    """
    layout = await layouts.create(connection, count, block)
    epoch = await _later_epoch(connection) if block else 0
    free = {"owner": "", "address": "", "epoch": epoch, "heartbeat_at": 0, "commits": 0, "successor": ""}
    first = shard_blocks.first_shard(block)
    rows = [{"shard": first + n, **free} for n in range(layout.shards)]
    await connection.execute(insert_or_ignore(connection, table), rows)
    return layout


async def create_shards_of(connection: AsyncConnection, number: BusinessNumber, count: int) -> None:
    """Create the shards of a number as `create_shards` does, unless it is being removed or was removed."""
    now = await numbers.find(connection, number.number, lock=True)
    if now is not None and now.shard_block == number.shard_block and now.state != numbers.REMOVING:
        await create_shards(connection, count, number.shard_block)


async def _later_epoch(connection: AsyncConnection) -> int:
    """Return an epoch above those of all shards before: Unix microseconds, by the later of the two clocks."""
    milliseconds: int = (await connection.execute(sa.select(database_clock.now(connection)))).scalar_one()
    return max(milliseconds * 1000, time.time_ns() // 1000)


async def claim(
    connection: AsyncConnection, shard: int, *, owner: str, address: str, heartbeat_timeout: float
) -> Lease | None:
    """Take a shard that is free, that `owner` already owns, or whose owner sent no heartbeat for `heartbeat_timeout`
    seconds.

    Returns None for other shards, and while the number of shards is to be changed.
    """
    await _lock(connection, shard)
    layout = await layouts.find(connection, shard_blocks.block_of(shard))
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
                table.c.heartbeat_at < now - int(heartbeat_timeout * 1000),
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
    """Record the owner's heartbeat. Raises `LeaseLost`."""
    await _lock(connection, lease.shard)
    renewed = await connection.execute(
        table.update()
        .where(table.c.shard == lease.shard, table.c.epoch == lease.epoch)
        .values(heartbeat_at=database_clock.now(connection))
    )
    if renewed.rowcount != 1:
        raise LeaseLost(f"shard {lease.shard} is no longer owned under epoch {lease.epoch}")


async def release(connection: AsyncConnection, lease: Lease, *, successor: str = "") -> None:
    """Release the shard at once, for `successor` if one waits for it. Does nothing when the lease was lost."""
    await connection.execute(
        table.update()
        .where(table.c.shard == lease.shard, table.c.epoch == lease.epoch)
        .values(owner="", address="", heartbeat_at=0, successor=successor)
    )
    await leases.end(connection, lease.shard, lease.epoch)


async def expel_others(connection: AsyncConnection, lease: Lease) -> None:
    """Make the owners of the number's other shards claim them again before they commit, since their account data is
    outdated.

    Must be part of a transaction that starts with `fence`. A process that is claiming a free shard is affected too:
    the row of that shard is also written, so the claim waits for this transaction. On a cluster one of the two is
    refused.
    """
    others = sa.and_(of_block(lease.block), table.c.shard != lease.shard)
    await connection.execute(table.update().where(others).values(epoch=table.c.epoch + 1))


def of_block(block: int, column: sa.Column[int] = table.c.shard) -> sa.ColumnElement[bool]:
    """Return the condition that a shard belongs to the number with this shard block."""
    first = shard_blocks.first_shard(block)
    return column.between(first, first + shard_blocks.SIZE - 1)


async def delete_shards(connection: AsyncConnection, block: int) -> None:
    """Delete the shards of a number with their layout and leases. Every later commit of their owners is refused."""
    await connection.execute(table.delete().where(of_block(block)))
    await leases.delete(connection, of_block(block, leases.table.c.shard))
    await layouts.delete(connection, block)


_OWNED = sa.and_(table.c.shard == sa.bindparam("of_shard"), table.c.epoch == sa.bindparam("under_epoch"))
_FENCE = table.update().where(_OWNED).values(commits=table.c.commits + 1)
# A writing transaction on SQLite excludes all others from its start.
_FENCE_OF_SQLITE = sa.select(table.c.epoch).where(_OWNED)


async def fence(connection: AsyncConnection, lease: Lease) -> None:
    """Check the lease. Must be the first statement of every transaction that writes for a shard. Raises `LeaseLost`.

    The row stays locked until the commit, so a takeover happens either before this transaction or after it. A cluster
    that certifies what was written (Galera) refuses one of two conflicting transactions of different nodes (decision
    23): the later one, even if its node has yet to apply the earlier one.
    """
    parameters = {"of_shard": lease.shard, "under_epoch": lease.epoch}

    async def check(_: AsyncConnection, owned: int) -> None:
        if owned != 1:
            raise _lost(lease)

    if connection.dialect.name == "sqlite":
        await check(connection, len((await connection.execute(_FENCE_OF_SQLITE, parameters)).all()))
    else:
        await write(connection, _FENCE, parameters, check)


@functools.cache
def _all_owned(count: int) -> sa.ColumnElement[bool]:
    """Return the condition that a row is one of `count` owned shards. It lets the database use the primary key."""
    owned = (
        (table.c.shard == sa.bindparam(f"shard{n}")) & (table.c.epoch == sa.bindparam(f"epoch{n}"))
        for n in range(count)
    )
    return sa.or_(*owned)


@functools.cache
def _fence_all(count: int) -> sa.Update:
    return table.update().where(_all_owned(count)).values(commits=table.c.commits + 1)


@functools.cache
def _fence_all_of_sqlite(count: int) -> sa.Select[tuple[int]]:
    return sa.select(table.c.epoch).where(_all_owned(count))


async def fence_all(connection: AsyncConnection, leases: Sequence[Lease]) -> None:
    """Check several leases as `fence` does, in one statement. Raises `LeaseLost`, which does not name the lost ones."""
    if len(leases) == 1:
        await fence(connection, leases[0])
        return
    # The last lease is repeated up to a power of two, so that there are few statements to compile.
    count = 1 << (len(leases) - 1).bit_length()
    filled = [*leases, *[leases[-1]] * (count - len(leases))]
    parameters = {f"shard{n}": lease.shard for n, lease in enumerate(filled)}
    parameters |= {f"epoch{n}": lease.epoch for n, lease in enumerate(filled)}

    async def check(_: AsyncConnection, owned: int) -> None:
        if owned != len(leases):
            raise LeaseLost(f"{len(leases) - owned} of {len(leases)} shards are no longer owned")

    if connection.dialect.name == "sqlite":
        await check(connection, len((await connection.execute(_fence_all_of_sqlite(count), parameters)).all()))
    else:
        await write(connection, _fence_all(count), parameters, check)


def _lost(lease: Lease) -> LeaseLost:
    LATE.labels(lease.shard).inc()
    log.warning("lease.late_commit", extra={"shard": lease.shard, "epoch": lease.epoch, "owner": lease.owner})
    return LeaseLost(f"shard {lease.shard} is no longer owned under epoch {lease.epoch}")


def fenced(
    lease: Lease, work: Callable[[AsyncConnection], Awaitable[Value]]
) -> Callable[[AsyncConnection], Awaitable[Value]]:
    """Return a transaction that calls `fence` and then `work`."""

    async def transaction(connection: AsyncConnection) -> Value:
        await fence(connection, lease)
        return await work(connection)

    return transaction


async def list_owners(connection: AsyncConnection) -> Sequence[Owner]:
    """List the owners of all shards, by shard. A shard without an owner has an empty node and address."""
    rows = await connection.execute(
        sa.select(table.c.shard, table.c.owner, table.c.address, table.c.epoch).order_by(table.c.shard)
    )
    return [Owner(shard, owner, address, epoch) for shard, owner, address, epoch in rows]


async def map_owners(connection: AsyncConnection) -> Mapping[int, Owner]:
    """Return the owners of all shards by shard, as `list_owners` does."""
    return {owner.shard: owner for owner in await list_owners(connection)}


async def list_heartbeat_ages(connection: AsyncConnection) -> Mapping[int, float]:
    """Return for each shard the seconds since its last heartbeat, by the database's clock."""
    now = database_clock.now(connection)
    rows = await connection.execute(sa.select(table.c.shard, now - table.c.heartbeat_at))
    return {shard: float(milliseconds) / 1000 for shard, milliseconds in rows}


async def list_states(connection: AsyncConnection) -> Sequence[ShardState]:
    """List the states of all shards, by shard."""
    heartbeat_age = database_clock.now(connection) - table.c.heartbeat_at
    rows = await connection.execute(
        sa.select(table.c.shard, table.c.owner, table.c.successor, heartbeat_age).order_by(table.c.shard)
    )
    return [ShardState(shard, owner, successor, silent / 1000) for shard, owner, successor, silent in rows]


async def _lock(connection: AsyncConnection, shard: int) -> None:
    """Lock the row of a shard. A statement's time is that of its start: one that waits would write an old heartbeat."""
    await connection.execute(sa.select(table.c.shard).where(table.c.shard == shard).with_for_update())
