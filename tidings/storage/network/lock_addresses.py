"""Addresses from which the devices of locked numbers have logged in, as keyed hashes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, save_rows, select_paged
from tidings.storage.network.tables import metadata


@dataclasses.dataclass(frozen=True, slots=True)
class LockAddress:
    """Address from which a number's device has logged in."""

    number: Annotated[str, types.key(15)]
    address_hash: Annotated[bytes, types.fixed_bytes(32)]
    # Unix milliseconds of a login, accurate to one day.
    seen_at: types.UnixMilliseconds


addresses = metadata.table_of(
    LockAddress,
    "registration_lock_addresses",
    sa.Index("registration_lock_addresses_by_time", "seen_at"),
    key=("number", "address_hash"),
)
_LATEST_FIRST = addresses.c.number, addresses.c.seen_at.desc(), addresses.c.address_hash
_BY_NUMBER = sa.select(addresses).where(addresses.c.number.in_(any_of("numbers"))).order_by(*_LATEST_FIRST)


async def list_by_number(connection: AsyncConnection, numbers: Collection[str]) -> Mapping[str, Sequence[LockAddress]]:
    """Return the addresses of these numbers, latest first. Numbers without any are absent."""
    found: dict[str, list[LockAddress]] = {}
    for row in await select_paged(connection, _BY_NUMBER, "numbers", numbers):
        found.setdefault(row.number, []).append(LockAddress(*row))
    return found


async def save(connection: AsyncConnection, rows: Sequence[LockAddress]) -> None:
    """Store addresses, or their later times."""
    await save_rows(connection, addresses, rows)


async def delete(connection: AsyncConnection, row: LockAddress) -> None:
    """Delete one address, unless it was seen again since the row was read."""
    is_row = (addresses.c.number == row.number) & (addresses.c.address_hash == row.address_hash)
    await connection.execute(addresses.delete().where(is_row, addresses.c.seen_at == row.seen_at))


async def delete_of(connection: AsyncConnection, number: str) -> None:
    """Delete all addresses of a number."""
    await connection.execute(addresses.delete().where(addresses.c.number == number))


async def delete_old(connection: AsyncConnection, seen_before: int) -> int:
    """Delete addresses last seen before `seen_before` (Unix milliseconds). Returns the number deleted."""
    return (await connection.execute(addresses.delete().where(addresses.c.seen_at < seen_before))).rowcount
