"""Pre-keys of devices: their private parts, replacement, retirement and ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import execute_paged, select_paged
from tidings.storage.handset.devices import devices
from tidings.storage.handset.tables import metadata
from tidings.storage.row_lists import any_row_of, row_list

# Kinds of pre-key. The ids of one device's pre-keys are unique across kinds.
ONE_TIME = "ec"  # deleted in the transaction that saves the session it set up
SIGNED = "signed"
KYBER_ONE_TIME = "kyber"  # deleted like the EC ones
KYBER_LAST = "kyber_last"  # last-resort key, used repeatedly

_LASTING = (SIGNED, KYBER_LAST)


@dataclasses.dataclass(frozen=True, slots=True)
class HandsetPreKeyRow:
    """Private part of one pre-key, sealed."""

    number: Annotated[str, types.key(20)]
    key_id: int
    kind: Annotated[str, types.key(12)]
    sealed: bytes
    created_at: types.UnixMilliseconds = 0
    # Unix milliseconds since when, as far as is known, the network does not hand out the key: it was replaced, is gone
    # from the network, or is not there yet. 0 for a key in use.
    retired_at: types.UnixMilliseconds = 0


prekeys = metadata.table_of(HandsetPreKeyRow, "handset_prekeys", key=("number", "key_id"))

_OF_PAIRS = any_row_of("pairs", prekeys.c.number, prekeys.c.key_id)
_PREKEYS = sa.select(prekeys).where(_OF_PAIRS)
_DELETE_PREKEYS = prekeys.delete().where(_OF_PAIRS)


async def add(connection: AsyncConnection, rows: Sequence[HandsetPreKeyRow]) -> None:
    """Add new pre-keys. Raises `IntegrityError` when an id was used before."""
    if rows:
        await connection.execute(prekeys.insert(), [dataclasses.asdict(row) for row in rows])


async def list_prekeys(connection: AsyncConnection, wanted: Iterable[tuple[str, int]]) -> list[HandsetPreKeyRow]:
    """List those of the given pre-keys, (number, key id), that exist."""
    rows = await select_paged(connection, _PREKEYS, "pairs", sorted(set(wanted)), 500, as_list=row_list)
    return [HandsetPreKeyRow(*row) for row in rows]


async def delete(connection: AsyncConnection, used: Iterable[tuple[str, int]]) -> None:
    """Delete pre-keys, (number, key id)."""
    await execute_paged(connection, _DELETE_PREKEYS, "pairs", used, 500, as_list=row_list)


async def delete_unregistered(connection: AsyncConnection, number: str) -> None:
    """Delete a device without pre-keys, which was never registered."""
    has_keys = sa.select(prekeys.c.number).where(prekeys.c.number == number).exists()
    await connection.execute(devices.delete().where(devices.c.number == number, devices.c.token.is_(None), ~has_keys))


async def list_due(connection: AsyncConnection, fleet: str, before: int, *, after: str, limit: int) -> Sequence[str]:
    """List the numbers above `after` of registered devices that have no young signed pre-key in use.

    A pre-key is young if it was made at `before` (Unix milliseconds) or later.
    """
    young = (
        sa.select(prekeys.c.number)
        .where(prekeys.c.kind == SIGNED, prekeys.c.retired_at == 0, prekeys.c.created_at >= before)
        .where(prekeys.c.number == devices.c.number)
        .exists()
    )
    rows = await connection.execute(
        sa.select(devices.c.number)
        .where(devices.c.fleet == fleet, devices.c.token.is_not(None), devices.c.number > after, ~young)
        .order_by(devices.c.number)
        .limit(limit)
    )
    return list(rows.scalars())


async def list_key_ids(connection: AsyncConnection, numbers: Sequence[str]) -> dict[str, set[int]]:
    """Return the ids of all pre-keys of at most 1,000 devices."""
    found: dict[str, set[int]] = {number: set() for number in numbers}
    rows = await connection.execute(
        sa.select(prekeys.c.number, prekeys.c.key_id).where(prekeys.c.number.in_(list(numbers)))
    )
    for number, key_id in rows:
        found[number].add(key_id)
    return found


async def replace_lasting(connection: AsyncConnection, number: str, key_ids: Sequence[int], now: int) -> None:
    """Record that the network has these signed and Kyber pre-keys, and retire the others."""
    lasting = (prekeys.c.number == number) & prekeys.c.kind.in_(_LASTING)
    await connection.execute(
        prekeys.update()
        .where(lasting, prekeys.c.key_id.not_in(key_ids), prekeys.c.retired_at == 0)
        .values(retired_at=now)
    )
    await connection.execute(prekeys.update().where(lasting, prekeys.c.key_id.in_(key_ids)).values(retired_at=0))


async def retire_one_time(connection: AsyncConnection, number: str, left: Sequence[int], now: int) -> None:
    """Retire one-time pre-keys that the network does not have: they were handed out, or never arrived.

    left: ids of those that the network has, at most 1,000
    """
    one_time = (prekeys.c.number == number) & prekeys.c.kind.in_((ONE_TIME, KYBER_ONE_TIME))
    await connection.execute(
        prekeys.update()
        .where(one_time, prekeys.c.key_id.not_in(left), prekeys.c.retired_at == 0)
        .values(retired_at=now)
    )
    await connection.execute(prekeys.update().where(one_time, prekeys.c.key_id.in_(left)).values(retired_at=0))


def signed_ids(number: str) -> sa.Select[Any]:
    """Return the query for the ids of the stored signed pre-keys of a device."""
    return sa.select(prekeys.c.key_id).where(prekeys.c.number == number, prekeys.c.kind == SIGNED)


async def delete_retired(connection: AsyncConnection, number: str, before: int) -> int:
    """Delete pre-keys retired before `before` (Unix milliseconds). Returns the number deleted."""
    old = (prekeys.c.number == number) & (prekeys.c.retired_at > 0) & (prekeys.c.retired_at < before)
    return (await connection.execute(prekeys.delete().where(old))).rowcount
