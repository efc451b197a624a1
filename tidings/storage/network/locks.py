"""Registration locks: the PIN that a registration by code needs besides the code."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import insert_or_update, pages
from tidings.storage.network.tables import metadata

locks = sa.Table(
    "registration_locks",
    metadata,
    sa.Column("number", types.key(15), primary_key=True),
    sa.Column("pin_hash", types.key(255), nullable=False),
    sa.Column("active_at", types.milliseconds(), nullable=False),
    sa.Column("daily_full_at", types.milliseconds(), nullable=False),
    sa.Column("yearly_full_at", types.milliseconds(), nullable=False),
    sa.Index("registration_locks_by_activity", "active_at", "number"),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Lock:
    """The lock of one number. Times are Unix milliseconds.

    pin_hash:       argon2's own text form.
    active_at:      last time that the device was seen, to the hour.
    daily_full_at:  when the bucket that bounds wrong PINs by the day is full; yearly_full_at: the one by the year.
    """

    number: str
    pin_hash: str = dataclasses.field(repr=False)
    active_at: int
    daily_full_at: int = 0
    yearly_full_at: int = 0


async def find(connection: AsyncConnection, number: str, *, lock: bool = False) -> Lock | None:
    """Return a number's lock, expired or not; with `lock` it cannot change before the transaction ends."""
    query = sa.select(locks).where(locks.c.number == number)
    row = (await connection.execute(query.with_for_update() if lock else query)).first()
    return Lock(*row) if row else None


async def put(connection: AsyncConnection, number: str, pin_hash: str, now: int) -> None:
    """Set a number's PIN. Wrong tries of the PIN before stay counted: a new PIN gives nobody new tries."""
    await connection.execute(
        insert_or_update(connection, locks, ("number",), ("pin_hash", "active_at")),
        [{"number": number, "pin_hash": pin_hash, "active_at": now, "daily_full_at": 0, "yearly_full_at": 0}],
    )


async def write_tries(connection: AsyncConnection, number: str, daily_full_at: int, yearly_full_at: int) -> None:
    """Store when the buckets of wrong PINs are full (Unix milliseconds)."""
    await connection.execute(
        locks.update()
        .where(locks.c.number == number)
        .values(daily_full_at=daily_full_at, yearly_full_at=yearly_full_at)
    )


async def delete(connection: AsyncConnection, number: str) -> bool:
    """Remove a number's lock; false when there was none."""
    return (await connection.execute(locks.delete().where(locks.c.number == number))).rowcount > 0


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
    for page in pages(list(numbers)):
        await connection.execute(
            locks.update().where(locks.c.number.in_(page), locks.c.active_at < now).values(active_at=now)
        )


async def delete_expired(connection: AsyncConnection, active_before: int) -> int:
    """Delete locks whose devices were last seen before `active_before` (Unix milliseconds); returns how many."""
    return (await connection.execute(locks.delete().where(locks.c.active_at < active_before))).rowcount
