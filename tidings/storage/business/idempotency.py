"""Idempotency keys: which request each was first used for, and what that was answered."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, insert_or_ignore, pages, save_rows
from tidings.storage.row_lists import any_row_of, row_list

MESSAGES, MEDIA = "messages", "media"  # resources

LIFETIME_MS = 24 * 3600 * 1000

table = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("resource", types.key(16), primary_key=True),
    sa.Column("key_hash", types.fixed_bytes(32), primary_key=True),
    sa.Column("fingerprint", types.fixed_bytes(32), nullable=False),
    sa.Column("answer", types.key(64), nullable=False),
    sa.Column("created_at", types.milliseconds(), nullable=False),
    sa.Index("idempotency_keys_by_age", "created_at"),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class UsedKey:
    """Idempotency key with the answer to its first use.

    key_hash, fingerprint: SHA-256 of the key and of the request; answer: the id that was made.
    created_at: Unix milliseconds.
    """

    account: str
    resource: str
    key_hash: bytes
    fingerprint: bytes
    answer: str
    created_at: int


def hash_of(key: str) -> bytes:
    """A key in the form in which it is kept."""
    return hashlib.sha256(key.encode()).digest()


_LIST = sa.select(table).where(
    table.c.account == sa.bindparam("account"),
    table.c.resource == sa.bindparam("resource"),
    table.c.key_hash.in_(any_of("hashes")),
    table.c.created_at > sa.bindparam("since"),
)


async def list_used(
    connection: AsyncConnection, account: str, resource: str, hashes: Sequence[bytes], since: int
) -> Sequence[UsedKey]:
    """Those of the keys that were used after `since` (Unix milliseconds)."""
    found: list[UsedKey] = []
    for page in pages(hashes):
        rows = await connection.execute(
            _LIST, {"account": account, "resource": resource, "hashes": page, "since": since}
        )
        found += [UsedKey(*row) for row in rows]
    return found


async def save(connection: AsyncConnection, keys: Sequence[UsedKey]) -> None:
    """Keep keys with their answers, in the transaction that makes what they answer with; a later use takes the place
    of an earlier one, which must be out of date."""
    update = ("fingerprint", "answer", "created_at")
    await save_rows(connection, table, ("account", "resource", "key_hash"), update, keys)


async def claim(connection: AsyncConnection, key: UsedKey, since: int) -> UsedKey:
    """The first use of a key after `since` (Unix milliseconds): this one, unless there was another.

    Of several that claim a key at once, all are told the same; the others wait until the first has committed.
    """
    row = dataclasses.asdict(key)
    mine = (
        table.c.account == key.account,
        table.c.resource == key.resource,
        table.c.key_hash == key.key_hash,
    )
    await connection.execute(insert_or_ignore(connection, table), [row])
    await connection.execute(table.update().where(*mine, table.c.created_at <= since).values(**row))
    return UsedKey(*(await connection.execute(sa.select(table).where(*mine))).one())


async def delete_older(connection: AsyncConnection, before: int, limit: int) -> int:
    """Forget keys that were used before `before` (Unix milliseconds), at most `limit`; returns how many."""
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
    for page in pages(rows):
        await connection.execute(delete, {"rows": row_list(page)})
    return len(rows)
