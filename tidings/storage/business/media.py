"""Files that were uploaded, or that recipients sent: what there is and when it was last used."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import stickerpacks
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, insert_or_ignore, pages
from tidings.storage.rows import write_rows

table = sa.Table(
    "media",
    metadata,
    sa.Column("id", types.key(36), primary_key=True),
    sa.Column("account", types.key(20), nullable=False),
    sa.Column("kind", types.key(16), nullable=False),
    sa.Column("mime_type", types.key(255), nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("sha256", types.key(64), nullable=False),
    sa.Column("file", types.key(64), nullable=False),
    sa.Column("filename", types.text(255), nullable=False),
    sa.Column("created_at", types.milliseconds(), nullable=False),
    sa.Column("used_at", types.milliseconds(), nullable=False),
    sa.Column("blob", types.blob(), nullable=True),
    sa.Column("blob_expires_at", types.milliseconds(), nullable=True),
    sa.Index("media_by_file", "file"),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Media:
    """One file.

    id:       a UUID; kind: what it is sent as when nothing else is said, `image` say.
    size:     bytes; sha256: of the file, in hex; file: its name in the directory of files.
    filename: what its owner called it, for documents; may be empty.
    used_at:  when it was last uploaded, sent or fetched, to about a day (Unix milliseconds).
    blob:     where its encrypted copy is in the network and how to read it, sealed; gone at `blob_expires_at`.
    """

    id: str
    account: str
    kind: str
    mime_type: str
    size: int
    sha256: str
    file: str
    filename: str
    created_at: int
    used_at: int
    blob: bytes | None = dataclasses.field(default=None, repr=False)
    blob_expires_at: int | None = None


_COLUMNS = tuple(table.c[field.name] for field in dataclasses.fields(Media))
_LIST = sa.select(*_COLUMNS).where(table.c.id.in_(any_of("ids")))
# Few, since each is looked for.
_SOME_FILES = sa.select(table.c.file).limit(20)
_KNOWN_FILES = sa.select(table.c.file).where(table.c.file.in_(any_of("names")))
_TOUCH = (
    table.update()
    .where(table.c.id.in_(any_of("ids")), table.c.used_at < sa.bindparam("now"))
    .values(used_at=sa.bindparam("now"))
)
_DELETE_UNUSED = table.delete().where(table.c.id.in_(any_of("ids")), table.c.used_at < sa.bindparam("before"))


async def add(connection: AsyncConnection, media: Media) -> None:
    """Keep a file that is on disk already."""
    await connection.execute(table.insert(), [{column.name: getattr(media, column.name) for column in _COLUMNS}])


async def find(connection: AsyncConnection, account: str, media_id: str) -> Media | None:
    """One file of an account."""
    query = sa.select(*_COLUMNS).where(table.c.id == media_id, table.c.account == account)
    row = (await connection.execute(query)).first()
    return Media(*row) if row is not None else None


async def list_media(connection: AsyncConnection, ids: Sequence[str]) -> Sequence[Media]:
    """Those of the files that there are, in no order."""
    found: list[Media] = []
    for page in pages(ids):
        found += [Media(*row) for row in await connection.execute(_LIST, {"ids": page})]
    return found


async def take(connection: AsyncConnection, account: str, media_id: str) -> Media | None:
    """Read and forget one file, exactly once; delete it from the directory after the commit."""
    media = await find(connection, account, media_id)
    if media is None:
        return None
    deleted = await connection.execute(table.delete().where(table.c.id == media_id))
    return media if deleted.rowcount else None


async def touch(connection: AsyncConnection, ids: Sequence[str], now: int) -> None:
    """Note that files are used."""
    for page in pages(ids):
        await connection.execute(_TOUCH, {"ids": page, "now": now})


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """That a file was sent. blob: where its encrypted copy is by now; the others as in `Media`."""

    id: str
    used_at: int
    blob: bytes | None = dataclasses.field(repr=False)
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


async def note_uses(connection: AsyncConnection, uses: Sequence[Use]) -> None:
    """Note that files are used, and where their encrypted copies are; the last one noted counts."""
    # Several shards may send the same files at the same time: each locks them in the same order.
    rows = [
        {"media": use.id, "now": use.used_at, "copy": use.blob, "copy_expires_at": use.blob_expires_at}
        for use in sorted(uses, key=lambda use: use.id)
    ]
    await write_rows(connection, _USE, rows)


async def list_unused(
    connection: AsyncConnection, account: str, before: int, *, after: str = "", limit: int = 1000
) -> Sequence[Media]:
    """Files of an account last used before a time, in the order of their ids, from the one behind `after`.

    Those of stickers in packs are in use for as long as their pack is.
    """
    query = (
        sa.select(*_COLUMNS)
        .where(table.c.account == account, table.c.used_at < before, table.c.id > after)
        .where(table.c.id.not_in(sa.select(stickerpacks.stickers.c.image_data_id)))
        .order_by(table.c.id)
        .limit(limit)
    )
    return [Media(*row) for row in await connection.execute(query)]


async def delete_unused(connection: AsyncConnection, ids: Sequence[str], before: int) -> Sequence[str]:
    """Forget those of the files that are still unused since `before`; the ids of those that are not there any more.

    Delete these from the directory after the commit.
    """
    gone: list[str] = []
    for page in pages(ids):
        await connection.execute(_DELETE_UNUSED, {"ids": page, "before": before})
        kept = {media.id for media in await list_media(connection, page)}
        gone += [media_id for media_id in page if media_id not in kept]
    return gone


async def list_known_files(connection: AsyncConnection, names: Sequence[str]) -> set[str]:
    """Those of the names in the directory that belong to a file; the others are orphans if they are old enough."""
    known: set[str] = set()
    for page in pages(names):
        known.update(name for (name,) in await connection.execute(_KNOWN_FILES, {"names": page}))
    return known


async def list_some_files(connection: AsyncConnection) -> Sequence[str]:
    """Names of up to 20 files."""
    return list((await connection.execute(_SOME_FILES)).scalars())


async def add_all(connection: AsyncConnection, media: Sequence[Media]) -> None:
    """Keep files that are on disk already; those that are there stay as they are."""
    rows = [{column.name: getattr(entry, column.name) for column in _COLUMNS} for entry in media]
    await write_rows(connection, insert_or_ignore(connection, table), rows)
