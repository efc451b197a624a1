"""Resumable uploads of the Cloud API: sessions, and the parts of each file that have arrived."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, execute_paged, insert_or_ignore, select_paged


@dataclasses.dataclass(frozen=True, slots=True)
class CloudUpload:
    """Session of one upload."""

    # Random, URL-safe.
    id: Annotated[str, types.key(64)]
    account: Annotated[str, types.key(20)]
    mime_type: Annotated[str, types.key(255)]
    # Announced bytes of the file.
    size: Annotated[int, sa.BigInteger]
    # Bytes that are stored, from the start of the file.
    received: Annotated[int, sa.BigInteger]
    created_at: types.UnixMilliseconds
    # Id of the finished file; None before.
    media_id: Annotated[str | None, types.key(36)] = None


@dataclasses.dataclass(frozen=True, slots=True)
class CloudUploadPart:
    """Consecutive bytes of a file that one request brought."""

    upload_id: Annotated[str, types.key(64)]
    # Offset of its first byte in the file.
    position: Annotated[int, sa.BigInteger]
    account: Annotated[str, types.key(20)]
    # Bytes.
    size: Annotated[int, sa.BigInteger]
    # Name in the file store.
    file: Annotated[str, types.key(64)]


uploads = metadata.table_of(
    CloudUpload, "cloud_uploads", sa.Index("cloud_uploads_by_time", "account", "created_at"), key=("id",)
)
parts = metadata.table_of(CloudUploadPart, "cloud_upload_parts", key=("upload_id", "position"))

_PARTS_OF = sa.select(parts).where(parts.c.upload_id.in_(any_of("ids"))).order_by(parts.c.upload_id, parts.c.position)
_DELETE_PARTS = parts.delete().where(parts.c.upload_id.in_(any_of("ids")))
_DELETE = uploads.delete().where(uploads.c.id.in_(any_of("ids")))


async def add(connection: AsyncConnection, upload: CloudUpload) -> None:
    """Add a session. An existing one of the same id stays unchanged."""
    await connection.execute(insert_or_ignore(connection, uploads), [dataclasses.asdict(upload)])


async def count_open(connection: AsyncConnection, account: str, after: int) -> int:
    """Count the unfinished sessions that were created after `after` (Unix milliseconds)."""
    query = sa.select(sa.func.count()).where(
        uploads.c.account == account, uploads.c.created_at > after, uploads.c.media_id.is_(None)
    )
    return int((await connection.execute(query)).scalar_one())


async def find(connection: AsyncConnection, account: str, upload_id: str, after: int) -> CloudUpload | None:
    """Find a session of an account that was created after `after` (Unix milliseconds)."""
    query = sa.select(uploads).where(
        uploads.c.id == upload_id, uploads.c.account == account, uploads.c.created_at > after
    )
    row = (await connection.execute(query)).first()
    return CloudUpload(*row) if row is not None else None


async def list_parts(connection: AsyncConnection, upload_id: str) -> Sequence[CloudUploadPart]:
    """List the parts of a session in their order."""
    rows = await connection.execute(sa.select(parts).where(parts.c.upload_id == upload_id).order_by(parts.c.position))
    return [CloudUploadPart(*row) for row in rows]


async def append(connection: AsyncConnection, part: CloudUploadPart) -> bool:
    """Add a part if it starts where the stored bytes end. Returns whether it is stored, now or by an earlier call."""
    extended = await connection.execute(
        uploads.update()
        .where(uploads.c.id == part.upload_id, uploads.c.received == part.position, uploads.c.media_id.is_(None))
        .values(received=part.position + part.size)
    )
    if extended.rowcount:
        await connection.execute(parts.insert(), [dataclasses.asdict(part)])
        return True
    query = sa.select(parts.c.file).where(parts.c.upload_id == part.upload_id, parts.c.position == part.position)
    return bool((await connection.execute(query)).scalar() == part.file)


async def finish(connection: AsyncConnection, upload_id: str, media_id: str) -> str | None:
    """Record the file of a session, and delete its parts. Returns the file recorded first; None without a session."""
    await connection.execute(
        uploads.update().where(uploads.c.id == upload_id, uploads.c.media_id.is_(None)).values(media_id=media_id)
    )
    found = (await connection.execute(sa.select(uploads.c.media_id).where(uploads.c.id == upload_id))).scalar()
    await connection.execute(parts.delete().where(parts.c.upload_id == upload_id))
    return found


async def delete(connection: AsyncConnection, upload_ids: Sequence[str]) -> Sequence[str]:
    """Delete sessions. Returns the names of the files of their parts, to be deleted after the commit."""
    found = await select_paged(connection, _PARTS_OF, "ids", upload_ids)
    await execute_paged(connection, _DELETE_PARTS, "ids", upload_ids)
    await execute_paged(connection, _DELETE, "ids", upload_ids)
    return [row.file for row in found]


async def list_expired(connection: AsyncConnection, account: str, until: int, *, limit: int) -> Sequence[str]:
    """List the ids of the oldest sessions that were created no later than `until` (Unix milliseconds)."""
    query = (
        sa.select(uploads.c.id)
        .where(uploads.c.account == account, uploads.c.created_at <= until)
        .order_by(uploads.c.created_at)
        .limit(limit)
    )
    return list((await connection.execute(query)).scalars())
