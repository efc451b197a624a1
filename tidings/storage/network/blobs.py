"""Encrypted files that devices leave on the network for each other, with their owners and expiry times."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import add_rows, any_of, delete_listed, select_paged
from tidings.storage.network.tables import metadata


@dataclasses.dataclass(frozen=True, slots=True)
class Blob:
    """File of ciphertext."""

    # Id by which devices name the file. A device that knows it may fetch the file.
    id: Annotated[str, types.key(43)]
    # Number that uploaded the file.
    owner: Annotated[str, types.key(15)]
    # Name in the file store.
    file: Annotated[str, types.key(64)]
    # Bytes.
    size: Annotated[int, sa.BigInteger]
    expires_at: types.UnixMilliseconds


table = metadata.table_of(
    Blob,
    "blobs",
    sa.Index("blobs_by_file", "file"),
    sa.Index("blobs_by_expiry", "expires_at"),
    sa.Index("blobs_by_owner", "owner", "size"),
    key=("id",),
)


_FIND = sa.select(table).where(table.c.id.in_(any_of("ids")), table.c.expires_at > sa.bindparam("now"))
_EXPIRED = (
    sa.select(table)
    .where(table.c.expires_at <= sa.bindparam("now"))
    .order_by(table.c.expires_at)
    .limit(sa.bindparam("limit"))
)
_DELETE = table.delete().where(table.c.id.in_(any_of("ids")))
_FILES = sa.select(table.c.file).where(table.c.file.in_(any_of("files")))
# Files with the latest expiry times. The number is small, because each file is searched for.
_SOME_FILES = sa.select(table.c.file).order_by(table.c.expires_at.desc()).limit(20)
_OWNED = sa.select(sa.func.coalesce(sa.func.sum(table.c.size), 0)).where(table.c.owner == sa.bindparam("owner"))
_TOTAL = sa.select(sa.func.coalesce(sa.func.sum(table.c.size), 0))


async def add(connection: AsyncConnection, rows: Sequence[Blob]) -> None:
    """Add blobs. Existing ones stay unchanged."""
    await add_rows(connection, table, rows)


async def find(connection: AsyncConnection, ids: Sequence[str], *, now: int) -> dict[str, Blob]:
    """Return those of the given blobs that exist and have not expired, by id."""
    return {row.id: Blob(*row) for row in await select_paged(connection, _FIND, "ids", ids, now=now)}


async def list_expired(connection: AsyncConnection, *, now: int, limit: int) -> list[Blob]:
    """List expired blobs, oldest first."""
    return [Blob(*row) for row in await connection.execute(_EXPIRED, {"now": now, "limit": limit})]


async def delete(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Delete rows. Those that do not exist are ignored."""
    await delete_listed(connection, _DELETE, "ids", ids)


async def list_files(connection: AsyncConnection, files: Sequence[str]) -> set[str]:
    """Return those of the given files that belong to a blob, expired or not."""
    return {row.file for row in await select_paged(connection, _FILES, "files", files)}


async def list_some_files(connection: AsyncConnection) -> Sequence[str]:
    """List the names of up to 20 files, those with the latest expiry times."""
    return list((await connection.execute(_SOME_FILES)).scalars())


async def total_size(connection: AsyncConnection) -> int:
    """Return the total size of all blobs, bytes."""
    return int((await connection.execute(_TOTAL)).scalar_one())


async def owned_size(connection: AsyncConnection, owner: str) -> int:
    """Return the total size of the blobs of one number, bytes."""
    return int((await connection.execute(_OWNED, {"owner": owner})).scalar_one())
