"""Files that were uploaded before, by their id: each is stored in the network once, and again before that copy ends."""

from __future__ import annotations

import functools
import logging

import msgspec

from coreapp.context import ShardContext
from coreapp.media.errors import SourceFailed
from coreapp.media.pointers import Source
from coreapp.media.preparation import Found
from coreapp.media.uploads import HeldUp, Uploader
from tidings import e2ee
from tidings.media.files import Files
from tidings.storage.business import media, shards
from tidings.storage.business.media import Media
from tidings.storage.database import Connection
from tidings.wire import codes
from tidings.wire.media_objects import FilePointer

log = logging.getLogger(__name__)

# Milliseconds. The network keeps a blob for 14 days; a recipient gets at least half of that to fetch it.
LEAST_LEFT_MS = 7 * 24 * 3600 * 1000
# Seconds after which the row is looked at again: to note that it is used, and that it was not deleted.
IN_MEMORY_SECONDS = 3600.0


class _Kept(msgspec.Struct):
    """What is sealed in the row."""

    blob: str
    key: bytes
    digest: bytes


class StoredMedia:
    """The files of one account. What is known of their blobs is sealed in their rows."""

    def __init__(
        self,
        context: ShardContext,
        files: Files,
        uploader: Uploader,
    ) -> None:
        self._database = context.database
        self._lease = context.lease
        self._sealer = context.device.sealer
        self._clock = context.clock
        self._account = context.account
        self._files = files
        self._uploader = uploader

    async def find(self, source: Source, held_up: HeldUp) -> Found:
        """The pointer of a file; waits while the network or the disk is away. Raises `SourceFailed` and `LeaseLost`."""
        found = await self._database.query(lambda connection: media.find(connection, self._account, source.id))
        if found is None:
            raise SourceFailed(codes.NOT_FOUND, "id", f"there is no media {source.id}")
        now = int(self._clock.now() * 1000)
        pointer, expires_at = self._kept(found), found.blob_expires_at or 0
        if pointer is None or expires_at - now < LEAST_LEFT_MS:
            pointer, expires_at = await self._uploader.upload(
                functools.partial(self._files.open, found.file),
                found.size,
                found.sha256,
                found.mime_type,
                filename=found.filename,
                part="id",
                about=found.id,
                held_up=held_up,
            )
            now = int(self._clock.now() * 1000)
            keep = functools.partial(self._keep, found=found, pointer=pointer, expires_at=expires_at, now=now)
        else:
            keep = functools.partial(media.touch, ids=[found.id], now=now)
        await self._database.persist(shards.fenced(self._lease, keep))
        until = min(now / 1000 + IN_MEMORY_SECONDS, (expires_at - LEAST_LEFT_MS) / 1000)
        return Found(pointer, until)

    async def _keep(
        self, connection: Connection, found: Media, pointer: FilePointer, expires_at: int, now: int
    ) -> None:
        content = msgspec.json.encode(_Kept(pointer.blob, pointer.key, pointer.digest))
        sealed = self._sealer.seal(content, context=self._context(found.id))
        await media.set_blob(connection, found.id, sealed, expires_at)
        await media.touch(connection, [found.id], now)

    def _kept(self, found: Media) -> FilePointer | None:
        """What the row says of the file's blob."""
        if found.blob is None:
            return None
        try:
            opened = self._sealer.open(found.blob, self._context(found.id))
            kept = msgspec.json.decode(opened, type=_Kept)
        except (e2ee.CorruptState, ValueError) as error:
            log.warning("media.unreadable_pointer", extra={"media": found.id, "error": repr(error)})
            return None
        filename = found.filename or None
        return FilePointer(
            kept.blob, kept.key, kept.digest, found.size, found.mime_type, found.sha256, filename=filename
        )

    def _context(self, media_id: str) -> tuple[str, str, str, str]:
        return (self._account, "", "media", media_id)
