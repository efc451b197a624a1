"""Registration locks: PINs that a registration by code requires in addition to the code."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, execute_paged, save_rows, select_paged
from tidings.storage.network import lock_addresses
from tidings.storage.network.tables import metadata


@dataclasses.dataclass(frozen=True, slots=True)
class PinBuckets:
    """State of the buckets of wrong PINs of one number and one class of addresses."""

    # Time at which the daily bucket is full, Unix milliseconds.
    daily_full_at: int
    # Time at which the yearly bucket is full, Unix milliseconds.
    yearly_full_at: int


@dataclasses.dataclass(frozen=True, slots=True)
class Lock:
    """Registration lock of one number."""

    number: Annotated[str, types.key(15)]
    # In argon2's text form.
    pin_hash: Annotated[str, types.key(255)] = dataclasses.field(repr=False)
    # Last time that the device was seen, Unix milliseconds, accurate to one hour.
    active_at: types.UnixMilliseconds
    # As in `PinBuckets`: wrong PINs from addresses that are not familiar.
    daily_full_at: types.UnixMilliseconds = 0
    yearly_full_at: types.UnixMilliseconds = 0
    # Likewise from familiar addresses.
    familiar_daily_full_at: Annotated[int, types.milliseconds(), sa.DefaultClause("0")] = 0
    familiar_yearly_full_at: Annotated[int, types.milliseconds(), sa.DefaultClause("0")] = 0

    def buckets(self, *, familiar: bool) -> PinBuckets:
        """Return the buckets of familiar addresses, or of all others."""
        if familiar:
            return PinBuckets(self.familiar_daily_full_at, self.familiar_yearly_full_at)
        return PinBuckets(self.daily_full_at, self.yearly_full_at)


locks = metadata.table_of(
    Lock, "registration_locks", sa.Index("registration_locks_by_activity", "active_at", "number"), key=("number",)
)


async def find(connection: AsyncConnection, number: str, *, lock: bool = False) -> Lock | None:
    """Return a number's lock, expired or not; with `lock` it cannot change before the transaction ends."""
    query = sa.select(locks).where(locks.c.number == number)
    row = (await connection.execute(query.with_for_update() if lock else query)).first()
    return Lock(*row) if row else None


async def put(connection: AsyncConnection, number: str, pin_hash: str, now: int, *, refill: bool = False) -> None:
    """Set a number's PIN. Earlier wrong PINs stay counted, so that a new PIN allows no additional ones in a year.

    refill: fill the daily buckets.
    """
    daily = ("daily_full_at", "familiar_daily_full_at") if refill else ()
    await save_rows(connection, locks, [Lock(number, pin_hash, now)], ("pin_hash", "active_at", *daily))


async def write_buckets(connection: AsyncConnection, number: str, buckets: PinBuckets, *, familiar: bool) -> None:
    """Store the buckets of familiar addresses, or of all others."""
    prefix = "familiar_" if familiar else ""
    values = {f"{prefix}{name}": value for name, value in dataclasses.asdict(buckets).items()}
    await connection.execute(locks.update().where(locks.c.number == number).values(values))


async def delete(connection: AsyncConnection, number: str) -> bool:
    """Delete a number's lock and its familiar addresses. Returns false when there was no lock."""
    # The lock first, as all transactions that write both tables.
    deleted = (await connection.execute(locks.delete().where(locks.c.number == number))).rowcount > 0
    await lock_addresses.delete_of(connection, number)
    return deleted


async def exist(connection: AsyncConnection) -> bool:
    """Return whether any number has a lock, expired or not."""
    return (await connection.execute(sa.select(locks.c.number).limit(1))).first() is not None


async def list_locked(connection: AsyncConnection, numbers: Collection[str], *, lock: bool = False) -> Collection[str]:
    """Return those of the numbers that have a lock, expired or not.

    lock: these locks cannot change before the transaction ends
    """
    query = sa.select(locks.c.number).where(locks.c.number.in_(any_of("numbers"))).order_by(locks.c.number)
    found = await select_paged(connection, query.with_for_update() if lock else query, "numbers", numbers)
    return [row.number for row in found]


async def list_idle(
    connection: AsyncConnection, *, after: tuple[int, str], until: int, limit: int
) -> Sequence[tuple[int, str]]:
    """Return (active_at, number) of locks last seen after `after` and not after `until`, oldest first."""
    active_at, number = after
    later = (locks.c.active_at > active_at) | ((locks.c.active_at == active_at) & (locks.c.number > number))
    query = (
        sa.select(locks.c.active_at, locks.c.number)
        .where(later, locks.c.active_at <= until)
        .order_by(locks.c.active_at, locks.c.number)
        .limit(limit)
    )
    return [(row.active_at, row.number) for row in await connection.execute(query)]


async def note_active(connection: AsyncConnection, numbers: Collection[str], now: int) -> None:
    """Store that the devices of these numbers were seen now (Unix milliseconds)."""
    idle = locks.update().where(locks.c.number.in_(any_of("numbers")), locks.c.active_at < now)
    await execute_paged(connection, idle.values(active_at=now), "numbers", numbers)


async def delete_expired(connection: AsyncConnection, active_before: int) -> int:
    """Delete locks whose devices were last seen before `active_before` (Unix milliseconds). Returns the number."""
    return (await connection.execute(locks.delete().where(locks.c.active_at < active_before))).rowcount
