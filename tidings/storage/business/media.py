"""Media files uploaded by the business or sent by recipients, and the time of their last use."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import stickerpacks
from tidings.storage.business.tables import metadata
from tidings.storage.database import add_rows, any_of, execute_paged, select_paged
from tidings.storage.rows import write_rows


@dataclasses.dataclass(frozen=True, slots=True)
class MediaRow:
    """Media file."""

    # A UUID.
    id: Annotated[str, types.key(36)]
    account: Annotated[str, types.key(20)]
    # Message type that it is sent as by default, such as "image".
    kind: Annotated[str, types.key(16)]
    mime_type: Annotated[str, types.key(255)]
    # Bytes.
    size: Annotated[int, sa.BigInteger]
    # Hash of the file, in hexadecimal.
    sha256: Annotated[str, types.key(64)]
    # Name in the file store.
    file: Annotated[str, types.key(64)]
    # Name given by its owner, for documents; may be empty.
    filename: Annotated[str, types.text(255)]
    created_at: types.UnixMilliseconds
    # Unix milliseconds of the last upload, sending or download, accurate to about one day.
    used_at: types.UnixMilliseconds
    # Sealed pointer to its encrypted copy in the network; None for no copy.
    blob: bytes | None = dataclasses.field(default=None, repr=False)
    # Unix milliseconds at which the network deletes the copy; None for no copy.
    blob_expires_at: Annotated[int | None, types.milliseconds()] = None
    # Unix milliseconds from which the Cloud API does not know the file; None for a file that it knows while it exists.
    cloud_expires_at: Annotated[int | None, types.milliseconds()] = None


table = metadata.table_of(MediaRow, "media", sa.Index("media_by_file", "file"), key=("id",))


_LIST = sa.select(table).where(table.c.id.in_(any_of("ids")))
# A small number, because each file is searched for.
_SOME_FILES = sa.select(table.c.file).limit(20)
_KNOWN_FILES = sa.select(table.c.file).where(table.c.file.in_(any_of("names")))
_TOUCH = (
    table.update()
    .where(table.c.id.in_(any_of("ids")), table.c.used_at < sa.bindparam("now"))
    .values(used_at=sa.bindparam("now"))
)
# Files that the Cloud API does not know, or that have expired there.
_UNKNOWN_TO_CLOUD = sa.or_(table.c.cloud_expires_at.is_(None), table.c.cloud_expires_at <= sa.bindparam("now"))
_DELETE_UNUSED = table.delete().where(
    table.c.id.in_(any_of("ids")), table.c.used_at < sa.bindparam("before"), _UNKNOWN_TO_CLOUD
)


async def find(connection: AsyncConnection, account: str, media_id: str) -> MediaRow | None:
    """Find one file of an account."""
    query = sa.select(table).where(table.c.id == media_id, table.c.account == account)
    row = (await connection.execute(query)).first()
    return MediaRow(*row) if row is not None else None


async def find_of_any(connection: AsyncConnection, accounts: Sequence[str], media_id: str) -> MediaRow | None:
    """Find one file of any of the accounts."""
    query = sa.select(table).where(table.c.id == media_id, table.c.account.in_(accounts))
    row = (await connection.execute(query)).first()
    return MediaRow(*row) if row is not None else None


async def list_by_prefix(connection: AsyncConnection, account: str, prefix: str, *, limit: int) -> Sequence[MediaRow]:
    """List up to `limit` files of an account whose ids begin with `prefix`, which is part of a UUID."""
    # A range, which the index of the primary key serves on every database. `g` follows all digits of a UUID.
    query = table.select().where(table.c.id >= prefix, table.c.id < f"{prefix}g", table.c.account == account)
    return [MediaRow(*row) for row in await connection.execute(query.order_by(table.c.id).limit(limit))]


async def list_media(connection: AsyncConnection, ids: Sequence[str]) -> Sequence[MediaRow]:
    """List those of the given files that exist, in no particular order."""
    return [MediaRow(*row) for row in await select_paged(connection, _LIST, "ids", ids)]


async def take(connection: AsyncConnection, account: str, media_id: str) -> MediaRow | None:
    """Read and delete the row of one file, exactly once. Delete the file itself after the commit."""
    media = await find(connection, account, media_id)
    if media is None:
        return None
    deleted = await connection.execute(table.delete().where(table.c.id == media_id))
    return media if deleted.rowcount else None


async def touch(connection: AsyncConnection, ids: Sequence[str], now: int) -> None:
    """Record that files are used at `now` (Unix milliseconds)."""
    await execute_paged(connection, _TOUCH, "ids", ids, now=now)


@dataclasses.dataclass(frozen=True, slots=True)
class MediaUse:
    """Use of a stored file in a message: the columns that it changes in the row of the file."""

    id: str
    # Unix milliseconds.
    used_at: int
    # As in `MediaRow`.
    blob: bytes | None = dataclasses.field(repr=False)
    # As in `MediaRow`.
    blob_expires_at: int | None


_USE = (
    table.update()
    .where(table.c.id == sa.bindparam("media"))
    .values(
        used_at=sa.case((table.c.used_at < sa.bindparam("now"), sa.bindparam("now")), else_=table.c.used_at),
        blob=sa.bindparam("copy"),
        blob_expires_at=sa.bindparam("copy_expires_at"),
    )
)


async def note_uses(connection: AsyncConnection, uses: Sequence[MediaUse]) -> None:
    """Record that files are used, and the pointers to their encrypted copies. The last record of a file counts."""
    # Several shards may send the same files at the same time. All of them lock the rows in the order of the ids.
    rows = [
        {"media": use.id, "now": use.used_at, "copy": use.blob, "copy_expires_at": use.blob_expires_at}
        for use in sorted(uses, key=lambda use: use.id)
    ]
    await write_rows(connection, _USE, rows)


async def list_unused(
    connection: AsyncConnection, account: str, before: int, *, now: int, after: str = "", limit: int = 1000
) -> Sequence[MediaRow]:
    """List files of an account last used before `before` (Unix milliseconds), by id, starting after `after`.

    The files of stickers in packs are excluded: they are in use as long as their pack exists. So are files that have
    not expired in the Cloud API at `now` (Unix milliseconds).
    """
    query = (
        sa.select(table)
        .where(table.c.account == account, table.c.used_at < before, table.c.id > after, _UNKNOWN_TO_CLOUD)
        .where(table.c.id.not_in(sa.select(stickerpacks.stickers.c.image_data_id)))
        .order_by(table.c.id)
        .limit(limit)
    )
    return [MediaRow(*row) for row in await connection.execute(query, {"now": now})]


async def delete_unused(connection: AsyncConnection, ids: Sequence[str], before: int, now: int) -> Sequence[str]:
    """Delete the rows of files still unused since `before` (Unix milliseconds). Returns the ids that have no row now.

    Files that have not expired in the Cloud API at `now` (Unix milliseconds) stay. Delete these files from the file
    store after the commit.
    """
    await execute_paged(connection, _DELETE_UNUSED, "ids", ids, before=before, now=now)
    kept = {media.id for media in await list_media(connection, ids)}
    return [media_id for media_id in ids if media_id not in kept]


async def list_known_files(connection: AsyncConnection, names: Sequence[str]) -> set[str]:
    """Return those of the names that belong to a row. Files with other names are orphans if they are old enough."""
    return {row.file for row in await select_paged(connection, _KNOWN_FILES, "names", names)}


async def list_some_files(connection: AsyncConnection) -> Sequence[str]:
    """List the names of up to 20 files."""
    return list((await connection.execute(_SOME_FILES)).scalars())


async def add_all(connection: AsyncConnection, media: Sequence[MediaRow]) -> None:
    """Add files that are already in the file store. Existing rows stay unchanged."""
    await add_rows(connection, table, media)
