"""Encrypted files that devices leave on the network for each other: who left which, and until when they are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, delete_listed, insert_or_ignore, pages
from tidings.storage.network.tables import metadata
from tidings.storage.rows import write_rows

table = sa.Table(
    "blobs",
    metadata,
    sa.Column("id", types.key(43), primary_key=True),
    sa.Column("owner", types.key(15), nullable=False),
    sa.Column("file", types.key(64), nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("expires_at", types.milliseconds(), nullable=False),
    sa.Index("blobs_by_file", "file"),
    sa.Index("blobs_by_expiry", "expires_at"),
    sa.Index("blobs_by_owner", "owner", "size"),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Blob:
    """One file of ciphertext.

    id:         what devices call it; who knows it may fetch it.
    owner:      the number that left it.
    file:       its name in the directory of files.
    size:       bytes.
    expires_at: Unix milliseconds.
    """

    id: str
    owner: str
    file: str
    size: int
    expires_at: int


_COLUMNS = tuple(table.c[field.name] for field in dataclasses.fields(Blob))
_FIND = sa.select(*_COLUMNS).where(table.c.id.in_(any_of("ids")), table.c.expires_at > sa.bindparam("now"))
_EXPIRED = (
    sa.select(*_COLUMNS)
    .where(table.c.expires_at <= sa.bindparam("now"))
    .order_by(table.c.expires_at)
    .limit(sa.bindparam("limit"))
)
_DELETE = table.delete().where(table.c.id.in_(any_of("ids")))
_FILES = sa.select(table.c.file).where(table.c.file.in_(any_of("files")))
# Of those that live longest; few, since each is looked for.
_SOME_FILES = sa.select(table.c.file).order_by(table.c.expires_at.desc()).limit(20)
_OWNED = sa.select(sa.func.coalesce(sa.func.sum(table.c.size), 0)).where(table.c.owner == sa.bindparam("owner"))
_TOTAL = sa.select(sa.func.coalesce(sa.func.sum(table.c.size), 0))


async def add(connection: AsyncConnection, rows: Sequence[Blob]) -> None:
    """Store blobs; those that are there already stay as they are."""
    await write_rows(connection, insert_or_ignore(connection, table), [dataclasses.asdict(blob) for blob in rows])


async def find(connection: AsyncConnection, ids: Sequence[str], *, now: int) -> dict[str, Blob]:
    """Those of the blobs that have not expired, by id."""
    found: dict[str, Blob] = {}
    for page in pages(ids):
        for row in await connection.execute(_FIND, {"ids": list(page), "now": now}):
            blob = Blob(*row)
            found[blob.id] = blob
    return found


async def list_expired(connection: AsyncConnection, *, now: int, limit: int) -> list[Blob]:
    """Those whose time is over, the oldest first."""
    return [Blob(*row) for row in await connection.execute(_EXPIRED, {"now": now, "limit": limit})]


async def delete(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Remove rows; those that are not there are passed over."""
    await delete_listed(connection, _DELETE, "ids", ids)


async def list_files(connection: AsyncConnection, files: Sequence[str]) -> set[str]:
    """Those of the files that belong to a blob, expired or not."""
    found: set[str] = set()
    for page in pages(files):
        found.update((await connection.execute(_FILES, {"files": list(page)})).scalars())
    return found


async def list_some_files(connection: AsyncConnection) -> Sequence[str]:
    """Names of up to 20 files, those that are kept longest."""
    return list((await connection.execute(_SOME_FILES)).scalars())


async def total_size(connection: AsyncConnection) -> int:
    """Bytes of all blobs."""
    return int((await connection.execute(_TOTAL)).scalar_one())


async def owned_size(connection: AsyncConnection, owner: str) -> int:
    """Bytes of all blobs of one number."""
    return int((await connection.execute(_OWNED, {"owner": owner})).scalar_one())
