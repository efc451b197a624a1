"""Idempotency keys: the request for which a user first used each key, and its result.

A key belongs to a user. Programs before business revision 0028 know one form of a key only, which all users of an
account share. While such programs may run together with this one, a use is stored in the shared form, with its user.
If another user has the key already, it is stored in the user's own form instead (docs/decisions/0044).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, execute_paged, insert_or_ignore, save_rows, select_paged
from tidings.storage.row_lists import any_row_of, row_list

MESSAGES, MEDIA = "messages", "media"  # resources

LIFETIME_MS = 24 * 3600 * 1000


@dataclasses.dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Idempotency key in the forms in which it may be stored."""

    # Hash of the key alone.
    shared: bytes
    # Hash of the user and the key; equal to `shared` when the user is not known.
    own: bytes
    # Empty for a request from a Webapp of a release before 0028, which does not name the user.
    username: str


@dataclasses.dataclass(frozen=True, slots=True)
class UsedKey:
    """Row of a key with the result of its first use."""

    account: Annotated[str, types.key(20)]
    resource: Annotated[str, types.key(16)]
    # One of the two forms of the key.
    key_hash: Annotated[bytes, types.fixed_bytes(32)]
    # SHA-256 of the request.
    fingerprint: Annotated[bytes, types.fixed_bytes(32)]
    # Id that the request made.
    answer: Annotated[str, types.key(64)]
    created_at: types.UnixMilliseconds
    # User of the key; None when the program that wrote the row did not know it.
    username: Annotated[str | None, types.text(64)] = None


table = metadata.table_of(
    UsedKey,
    "idempotency_keys",
    sa.Index("idempotency_keys_by_age", "created_at"),
    key=("account", "resource", "key_hash"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class FoundKey:
    """Stored state of a key."""

    # First use; None when the key is free.
    used: UsedKey | None
    # Hash under which the use of a free key is to be stored.
    form: bytes


def key_of(username: str, key: str) -> IdempotencyKey:
    """Return the forms of a user's key."""
    shared = hashlib.sha256(key.encode()).digest()
    # A key contains no zero byte, so no two pairs have the same text.
    own = hashlib.sha256(f"{username}\0{key}".encode()).digest() if username else shared
    return IdempotencyKey(shared, own, username)


_LIST = sa.select(table).where(
    table.c.account == sa.bindparam("account"),
    table.c.resource == sa.bindparam("resource"),
    table.c.key_hash.in_(any_of("hashes")),
    table.c.created_at > sa.bindparam("since"),
)


async def look_up(
    connection: AsyncConnection, account: str, resource: str, keys: Iterable[IdempotencyKey], since: int
) -> Mapping[IdempotencyKey, FoundKey]:
    """Return the stored state of each key, considering uses after `since` (Unix milliseconds)."""
    wanted = dict.fromkeys(keys)
    hashes = dict.fromkeys(form for key in wanted for form in (key.shared, key.own))
    rows = await select_paged(connection, _LIST, "hashes", hashes, account=account, resource=resource, since=since)
    by_hash = {row.key_hash: UsedKey(*row) for row in rows}
    return {key: _found(key, by_hash) for key in wanted}


def _found(key: IdempotencyKey, by_hash: Mapping[bytes, UsedKey]) -> FoundKey:
    shared = by_hash.get(key.shared)
    if shared is None or _is_of(shared, key):
        return FoundKey(shared or by_hash.get(key.own), key.shared)
    return FoundKey(by_hash.get(key.own), key.own)


def _is_of(used: UsedKey, key: IdempotencyKey) -> bool:
    """Return whether a row in the shared form counts for the user of a key. A row without a user counts for all."""
    return not key.username or used.username in (None, key.username)


_LIST_FORMS = (
    sa.select(table.c.key_hash)
    .where(
        table.c.account == sa.bindparam("account"),
        table.c.resource == sa.bindparam("resource"),
        table.c.key_hash > sa.bindparam("after"),
    )
    .order_by(table.c.key_hash)
    .limit(sa.bindparam("limit"))
)


async def list_forms(
    connection: AsyncConnection, *, account: str, resource: str, after: bytes, limit: int
) -> Sequence[bytes]:
    """Return the hashes under which keys are stored, expired ones included: the first `limit` after `after`."""
    parameters = {"account": account, "resource": resource, "after": after, "limit": limit}
    return (await connection.execute(_LIST_FORMS, parameters)).scalars().all()


async def save(connection: AsyncConnection, keys: Sequence[UsedKey]) -> None:
    """Write used keys, in the transaction that makes the ids in `answer`.

    A later use replaces an earlier one, which must have expired.
    """
    await save_rows(connection, table, keys)


async def claim(connection: AsyncConnection, key: IdempotencyKey, use: UsedKey, since: int) -> UsedKey:
    """Return the first use of a key after `since` (Unix milliseconds): this one, unless there was another.

    Concurrent requests that claim a key get the same result: the others wait until the first has committed. The form
    of `use` does not matter.
    """
    use = dataclasses.replace(use, username=key.username or None)
    first = await _claim_row(connection, dataclasses.replace(use, key_hash=key.shared), since)
    if _is_of(first, key):
        return first
    return await _claim_row(connection, dataclasses.replace(use, key_hash=key.own), since)


async def _claim_row(connection: AsyncConnection, row: UsedKey, since: int) -> UsedKey:
    mine = (table.c.account == row.account, table.c.resource == row.resource, table.c.key_hash == row.key_hash)
    values = dataclasses.asdict(row)
    await connection.execute(insert_or_ignore(connection, table), [values])
    await connection.execute(table.update().where(*mine, table.c.created_at <= since).values(**values))
    return UsedKey(*(await connection.execute(sa.select(table).where(*mine))).one())


async def delete_older(connection: AsyncConnection, before: int, limit: int) -> int:
    """Delete at most `limit` keys used before `before` (Unix milliseconds). Returns the number deleted."""
    rows = list(
        await connection.execute(
            sa.select(table.c.account, table.c.resource, table.c.key_hash)
            .where(table.c.created_at <= before)
            .limit(limit)
        )
    )
    delete = table.delete().where(
        any_row_of("rows", table.c.account, table.c.resource, table.c.key_hash), table.c.created_at <= before
    )
    await execute_paged(connection, delete, "rows", rows, as_list=row_list)
    return len(rows)
