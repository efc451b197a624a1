"""Files that were uploaded over the API, by their id. Each is stored in the network once, and again before that copy
expires.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import sys
from collections.abc import Sequence

import msgspec

from coreapp.context import ShardContext
from coreapp.journal.change import Change
from coreapp.media.errors import SourceFailed
from coreapp.media.pointers import MediaSource
from coreapp.media.preparation import REMEMBERED, FoundMedia
from coreapp.media.uploads import HeldUp, Uploader
from tidings import e2ee
from tidings.aio.batcher import Batcher
from tidings.aio.lru import LRU
from tidings.objects.store import FileStore, open_reader
from tidings.storage.business import media
from tidings.storage.business.media import MediaRow
from tidings.wire import codes
from tidings.wire.media_objects import FilePointer

log = logging.getLogger(__name__)

# Minimum remaining life of a blob in milliseconds. The network keeps a blob for 14 days; a recipient gets at least half
# of that to fetch it.
LEAST_LEFT_MS = 7 * 24 * 3600 * 1000
# Seconds after which the row is read again, to record its use and to notice its deletion.
IN_MEMORY_SECONDS = 3600.0
# Name under which pointers to files in the network are sealed.
OF_NETWORK = "media"


class _Kept(msgspec.Struct):
    """Data sealed in the row."""

    blob: str
    key: bytes
    digest: bytes


@dataclasses.dataclass(eq=False, repr=False)
class StoredMedia:
    """Uploaded files of one account. The pointers to their blobs are sealed in their rows."""

    context: ShardContext
    files: FileStore
    uploader: Uploader
    _: dataclasses.KW_ONLY
    sealed_as: str = OF_NETWORK  # name of the sealed pointers; one of another name is not used
    # Blobs that do not exist any more before their time.
    lost: LRU[str, bool] = dataclasses.field(default_factory=lambda: LRU(REMEMBERED))

    def __post_init__(self) -> None:
        self._rows: Batcher[str, MediaRow | None] = Batcher(
            # At most one entry per job, which the job queue bounds.
            "media_wanted",
            self._read,
            max_pending=sys.maxsize,
        )

    async def find(self, source: MediaSource, held_up: HeldUp) -> FoundMedia:
        """Return the pointer of a file. Waits while the network or the disk is unusable.

        Raises `SourceFailed`, and `LeaseLost` and other errors of the journal.
        """
        found = await self._rows.submit(source.id)
        if found is None:
            raise SourceFailed(codes.NOT_FOUND, "id", f"there is no media {source.id}")
        now = self.context.now()
        pointer, expires_at, blob = self._kept(found), found.blob_expires_at or 0, found.blob
        if pointer is None or pointer.blob in self.lost or expires_at - now < LEAST_LEFT_MS:
            pointer, expires_at = await self.uploader.upload(
                functools.partial(open_reader, self.files, found.file),
                found.size,
                found.sha256,
                found.mime_type,
                filename=found.filename,
                part="id",
                about=found.id,
                held_up=held_up,
            )
            now = self.context.now()
            blob = self._seal(found.id, pointer)
        await self.context.journal.put(
            Change(self.context.account, used_media=(media.MediaUse(found.id, now, blob, expires_at),))
        )
        until = min(now / 1000 + IN_MEMORY_SECONDS, (expires_at - LEAST_LEFT_MS) / 1000)
        return FoundMedia(pointer, until)

    async def _read(self, ids: Sequence[str]) -> Sequence[MediaRow | None]:
        rows = await self.context.database.query(lambda connection: media.list_media(connection, ids))
        found = {row.id: row for row in rows if row.account == self.context.account}
        return [found.get(id) for id in ids]

    def _seal(self, media_id: str, pointer: FilePointer) -> bytes:
        content = msgspec.json.encode(_Kept(pointer.blob, pointer.key, pointer.digest))
        return self.context.device.sealer.seal(content, context=self._context(media_id))

    def _kept(self, found: MediaRow) -> FilePointer | None:
        """Return the pointer in the row; None if there is none or it cannot be read."""
        if found.blob is None:
            return None
        try:
            opened = self.context.device.sealer.open(found.blob, self._context(found.id))
            kept = msgspec.json.decode(opened, type=_Kept)
        except (e2ee.CorruptState, ValueError) as error:
            log.warning("media.unreadable_pointer", extra={"media": found.id, "error": repr(error)})
            return None
        filename = found.filename or None
        return FilePointer(
            kept.blob, kept.key, kept.digest, found.size, found.mime_type, found.sha256, filename=filename
        )

    def _context(self, media_id: str) -> tuple[str, str, str, str]:
        return (self.context.account, "", self.sealed_as, media_id)
