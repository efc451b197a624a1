"""One-time pre-keys that devices have left with the network, and the devices that have fetched a bundle of another."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import (
    add_rows,
    any_of,
    execute_paged,
    insert_or_ignore,
    insert_or_update,
    select_paged,
)
from tidings.storage.network.tables import metadata
from tidings.storage.row_lists import any_row_of, row_list

# Maximum number of values in one `IN (…)`.
CHUNK = 500
# Bytes of the digest of a one-time key, and uploaded keys that are remembered for one device.
_DIGEST, _REMEMBERED = 8, 1000


fetches = metadata.table(
    "bundle_fetches",
    sa.Column("target", types.key(15), primary_key=True),
    sa.Column("fetcher", types.key(15), primary_key=True),
)

# Digests of the one-time keys that each device has uploaded since its registration, the latest last: a repeated upload
# must not add a key again that was handed out. Programs before network revision 0014 do not record them.
uploads = metadata.table(
    "prekey_uploads",
    sa.Column("number", types.key(15), primary_key=True),
    sa.Column("digests", types.blob(), nullable=False),
)


class AlreadyTaken(Exception):
    """Another process took one of the same keys: roll back and try again."""


@dataclasses.dataclass(frozen=True, slots=True)
class PreKeyRow:
    """One-time pre-key of a device."""

    number: Annotated[str, types.key(15)]
    key_id: Annotated[int, sa.BigInteger]
    public: Annotated[bytes, types.fixed_bytes(33)]


table = metadata.table_of(PreKeyRow, "prekeys", key=("number", "key_id"))


@dataclasses.dataclass(frozen=True, slots=True)
class KyberPreKeyRow:
    """One-time Kyber pre-key of a device."""

    number: Annotated[str, types.key(15)]
    key_id: Annotated[int, sa.BigInteger]
    public: Annotated[bytes, types.fixed_bytes(1569)]
    signature: Annotated[bytes, types.fixed_bytes(64)]


kyber = metadata.table_of(KyberPreKeyRow, "kyber_prekeys", key=("number", "key_id"))


@dataclasses.dataclass(frozen=True, slots=True)
class PreKeyCounts:
    """Numbers of one-time pre-keys that a device has left at the network."""

    prekeys: int = 0
    kyber_prekeys: int = 0


async def put(connection: AsyncConnection, keys: Sequence[PreKeyRow]) -> None:
    """Add keys. One whose id exists stays unchanged."""
    await add_rows(connection, table, keys)


async def put_kyber(connection: AsyncConnection, keys: Sequence[KyberPreKeyRow]) -> None:
    """Add Kyber keys. One whose id exists stays unchanged."""
    await add_rows(connection, kyber, keys)


async def upload(
    connection: AsyncConnection, number: str, keys: Sequence[PreKeyRow], kyber_keys: Sequence[KyberPreKeyRow]
) -> tuple[list[int], list[int]]:
    """Add one-time keys of a number; return the ids that it has left, as `list_ids`.

    One whose id exists, or that is among the latest 1,000 uploaded ones, changes nothing. The caller has locked the
    number's registration, as those have that take keys.
    """
    ids, kyber_ids = await list_ids(connection, number)
    query = sa.select(uploads.c.digests).where(uploads.c.number == number)
    known = bytes((await connection.execute(query)).scalar() or b"")
    seen = {known[start : start + _DIGEST] for start in range(0, len(known), _DIGEST)}
    new = [key for key in keys if key.key_id not in ids and _digest(key) not in seen]
    new_kyber = [key for key in kyber_keys if key.key_id not in kyber_ids and _digest(key) not in seen]
    if not new and not new_kyber:
        return ids, kyber_ids
    await put(connection, new)
    await put_kyber(connection, new_kyber)
    added: list[PreKeyRow | KyberPreKeyRow] = [*new, *new_kyber]
    digests = (known + b"".join(_digest(key) for key in added))[-_REMEMBERED * _DIGEST :]
    await connection.execute(insert_or_update(connection, uploads), [{"number": number, "digests": digests}])
    return sorted((*ids, *(key.key_id for key in new))), sorted((*kyber_ids, *(key.key_id for key in new_kyber)))


def _digest(key: PreKeyRow | KyberPreKeyRow) -> bytes:
    return hashlib.sha256(b"%d %b" % (key.key_id, key.public)).digest()[:_DIGEST]


def _first_of_each(keys: sa.Table, signature: sa.ColumnElement[Any]) -> sa.Select[Any]:
    first = (
        sa.select(keys.c.number, sa.func.min(keys.c.key_id).label("key_id"))
        .where(keys.c.number.in_(any_of("numbers")))
        .group_by(keys.c.number)
        .subquery()
    )
    joined = keys.join(first, (keys.c.number == first.c.number) & (keys.c.key_id == first.c.key_id))
    return sa.select(keys.c.number, keys.c.key_id, keys.c.public, signature).select_from(joined)


_FIRST_OF_EACH = sa.union_all(_first_of_each(table, sa.null()), _first_of_each(kyber, kyber.c.signature))


async def take_one_each(
    connection: AsyncConnection, numbers: Iterable[str]
) -> tuple[dict[str, PreKeyRow], dict[str, KyberPreKeyRow]]:
    """Read and delete one key of each kind per number, exactly once. Numbers without keys are left out.

    Raises `AlreadyTaken` when another process took one of them first. The transaction must then be rolled back.
    """
    everything = sorted(set(numbers))
    ordinary: dict[str, PreKeyRow] = {}
    post_quantum: dict[str, KyberPreKeyRow] = {}
    for start in range(0, len(everything), CHUNK):
        chunk = everything[start : start + CHUNK]
        rows: Sequence[Any] = (await connection.execute(_FIRST_OF_EACH, {"numbers": chunk})).all()
        found = {
            number: PreKeyRow(number, key_id, public) for number, key_id, public, signature in rows if not signature
        }
        found_kyber = {
            number: KyberPreKeyRow(number, key_id, public, signature)
            for number, key_id, public, signature in rows
            if signature
        }
        await _delete_all(connection, table, found.values())
        await _delete_all(connection, kyber, found_kyber.values())
        ordinary |= found
        post_quantum |= found_kyber
    return ordinary, post_quantum


_DELETE = {keys: keys.delete().where(any_row_of("taken", keys.c.number, keys.c.key_id)) for keys in (table, kyber)}


async def _delete_all(connection: AsyncConnection, keys: sa.Table, taken: Iterable[PreKeyRow | KyberPreKeyRow]) -> None:
    ids = [(key.number, key.key_id) for key in taken]
    if not ids:
        return
    deleted = await connection.execute(_DELETE[keys], {"taken": row_list(ids)})
    if deleted.rowcount != len(ids):
        raise AlreadyTaken(f"{len(ids) - deleted.rowcount} of {len(ids)} keys")


_COUNT = {
    keys: sa.select(keys.c.number, sa.func.count()).where(keys.c.number.in_(any_of("numbers"))).group_by(keys.c.number)
    for keys in (table, kyber)
}


async def count_left(connection: AsyncConnection, numbers: Sequence[str]) -> dict[str, PreKeyCounts]:
    """Count the one-time keys that each of the numbers has left."""
    ordinary: dict[str, int] = {}
    post_quantum: dict[str, int] = {}
    for keys, left in ((table, ordinary), (kyber, post_quantum)):
        for number, count in await select_paged(connection, _COUNT[keys], "numbers", numbers, CHUNK):
            left[number] = count
    return {number: PreKeyCounts(ordinary.get(number, 0), post_quantum.get(number, 0)) for number in numbers}


async def list_ids(connection: AsyncConnection, number: str) -> tuple[list[int], list[int]]:
    """Return the ids of the one-time keys that a number has left: ordinary ones, Kyber ones."""
    found = [
        await connection.execute(sa.select(keys.c.key_id).where(keys.c.number == number).order_by(keys.c.key_id))
        for keys in (table, kyber)
    ]
    ordinary, post_quantum = (list(rows.scalars()) for rows in found)
    return ordinary, post_quantum


async def drop(connection: AsyncConnection, numbers: Sequence[str]) -> None:
    """Delete all one-time keys of these numbers, and the record of their uploads."""
    if numbers:
        await connection.execute(uploads.delete().where(uploads.c.number.in_(numbers)))
        await connection.execute(table.delete().where(table.c.number.in_(numbers)))
        await connection.execute(kyber.delete().where(kyber.c.number.in_(numbers)))


async def remember_fetchers(connection: AsyncConnection, pairs: Iterable[tuple[str, str]]) -> None:
    """Record pairs (target, fetcher). The fetcher has a bundle of the target, or will get messages from it.

    Two such devices probably have a session.
    """
    rows = [{"target": target, "fetcher": fetcher} for target, fetcher in sorted(set(pairs))]
    if rows:
        await connection.execute(insert_or_ignore(connection, fetches), rows)


async def take_fetchers(
    connection: AsyncConnection, targets: Sequence[str], *, limit: int = 10_000
) -> list[tuple[str, str]]:
    """Read and delete pairs (target, fetcher) of these targets, at most `limit`. Further pairs stay."""
    if not targets:
        return []
    query = sa.select(fetches).where(fetches.c.target.in_(targets)).limit(limit).with_for_update()
    pairs = [(target, fetcher) for target, fetcher in await connection.execute(query)]
    if len(pairs) < limit:
        if pairs:
            await connection.execute(fetches.delete().where(fetches.c.target.in_(targets)))
        return pairs
    fetchers: dict[str, list[str]] = {}
    for target, fetcher in pairs:
        fetchers.setdefault(target, []).append(fetcher)
    for target, taken in fetchers.items():
        delete = fetches.delete().where(fetches.c.target == target, fetches.c.fetcher.in_(any_of("fetchers")))
        await execute_paged(connection, delete, "fetchers", taken)
    return pairs
