"""Store, deliver and delete files."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import uuid
from collections.abc import AsyncIterator, Sequence

from prometheus_client import Counter, Gauge

from tidings.aio import crashpoints
from tidings.aio.batcher import Batcher
from tidings.aio.clock import Clock
from tidings.media import kinds
from tidings.media.errors import DiskFull, FileEmpty, FileGone, FileTooLarge, StoreUnavailable, UnusableType
from tidings.media.kinds import MediaType
from tidings.media.reading import MediaReader
from tidings.objects.store import FileStore, StoredObject, open_reader
from tidings.storage import outages
from tidings.storage.business import idempotency, media
from tidings.storage.business.idempotency import MEDIA, IdempotencyKey, UsedKey
from tidings.storage.business.media import MediaRow
from tidings.storage.database import Connection, Database
from tidings.wire.cloud import media_ids
from tidings.wire.codes import NOT_FOUND, PARAMETER_INVALID, PARAMETER_MISSING
from webapp.api.media import schemas
from webapp.api.media.transfer import TransferSlots
from webapp.auth.tokens import Caller
from webapp.http.errors import (
    APIError,
    BodyTooLarge,
    FileDamaged,
    FilesUnavailable,
    IdempotencyKeyReused,
    InvalidRequest,
    Overloaded,
    ResponsePending,
)

DAMAGED = Counter("tidings_media_damaged_total", "Stored files that were found damaged when requested")


def note_damaged(found: MediaRow) -> None:
    """Count and log a file that differs from what was stored."""
    DAMAGED.inc()
    log.error("media.file_damaged", extra={"media": found.id, "file": found.file})


class BytesReader:
    """Reader of a file in memory."""

    def __init__(self, content: bytes) -> None:
        self._left = content

    async def read(self, size: int) -> bytes:
        found, self._left = self._left[:size], self._left[size:]
        return found

    async def close(self) -> None:
        self._left = b""


class CheckedReader:
    """Reader that verifies a file while it is read. The last bytes of a damaged file are withheld."""

    def __init__(self, reader: MediaReader, found: MediaRow) -> None:
        self._reader = reader
        self._found = found
        self._left = found.size
        self._digest = hashlib.sha256()

    async def read(self, size: int) -> bytes:
        block = await self._reader.read(min(size, self._left))
        self._left -= len(block)
        await asyncio.to_thread(self._digest.update, block)
        if block and not self._left and self._digest.hexdigest() != self._found.sha256:
            note_damaged(self._found)
            return b""
        return block

    async def close(self) -> None:
        await self._reader.close()


log = logging.getLogger(__name__)

UPLOADS = Counter("tidings_api_uploads_total", "Files uploaded to the API, by kind and outcome", ["kind", "outcome"])
IN_PROGRESS = Gauge("tidings_api_uploads_in_progress", "Files that are being uploaded to the API")

# Milliseconds. A use of a file is recorded only when the last recorded one is older.
TOUCH_AFTER_MS = 24 * 3600 * 1000
# Bytes. A file up to this size is read into memory at once to be delivered; at most 256 of them at the same time.
IN_MEMORY = 1024 * 1024
# Downloads at the same time. Each holds a block in memory.
MAX_DOWNLOADS = 256
# Seconds after which a client should retry when the disk is full.
_FULL_RETRY = 60


class MediaStore:
    """Files of the caller's account.

    At most `max_uploads` uploads are in progress at the same time. A further one is refused with 503.
    """

    def __init__(self, database: Database, files: FileStore, clock: Clock, *, max_uploads: int) -> None:
        self._database = database
        self._files = files
        self._clock = clock
        self._uploads = TransferSlots("uploads", max_uploads)
        self.downloads = TransferSlots("downloads", MAX_DOWNLOADS)
        self._keys: set[tuple[str, str, str]] = set()
        self._rows: Batcher[tuple[MediaRow, tuple[IdempotencyKey, UsedKey] | None], UsedKey | None] = Batcher(
            "media", self._write, isolate=outages.refuses_row
        )

    async def upload(
        self,
        caller: Caller,
        media_type: MediaType,
        chunks: AsyncIterator[bytes],
        *,
        request_id: str,
        key: str = "",
        cloud_ms: int | None = None,
    ) -> str:
        """Store a file and return its id. The file is on disk when this returns.

        A request that repeats an idempotency key returns the id of the first one. Raises `InvalidRequest`,
        `Overloaded`, `FilesUnavailable`, `IdempotencyKeyReused` and `ResponsePending`.

        key: idempotency key of the request; empty without one
        cloud_ms: milliseconds for which the Cloud API knows the file; `None` for as long as it exists
        """
        if key and (caller.account, caller.username, key) in self._keys:
            raise ResponsePending()
        self._uploads.take()
        started = self._clock.monotonic()
        stored: StoredObject | None = None
        outcome, media_id = "failed", ""
        IN_PROGRESS.inc()
        if key:
            self._keys.add((caller.account, caller.username, key))
        try:
            try:
                stored = await self._files.write(chunks, limit=media_type.limit, check=media_type.check)
            except (UnusableType, FileTooLarge, FileEmpty, DiskFull) as error:
                outcome = "refused"
                raise _refusal(error) from None
            except StoreUnavailable as error:
                raise away(error) from error
            crashpoints.reach(crashpoints.AFTER_FILE_BEFORE_ROW)
            media_id = await self._keep(caller, media_type, stored, key, cloud_ms)
            outcome = "kept"
            return media_id
        finally:
            self._uploads.release()
            IN_PROGRESS.dec()
            self._keys.discard((caller.account, caller.username, key))
            UPLOADS.labels(media_type.kind, outcome).inc()
            log.info(
                "media.uploaded",
                extra={
                    "request_id": request_id,
                    "username": caller.username,
                    "outcome": outcome,
                    "media": media_id,
                    "mime_type": media_type.text,
                    "bytes": stored.size if stored else 0,
                    "seconds": round(self._clock.monotonic() - started, 3),
                },
            )

    async def open(self, caller: Caller, media_id: str) -> tuple[MediaRow, MediaReader]:
        """Open a file for reading from its start, verified against what was stored.

        The file is verified before the response starts, since a status cannot be changed afterwards. A file of at
        most `IN_MEMORY` bytes is read once, into memory. A larger one is read twice, the second time from the
        system's cache (about 0.1 s more for a document of 100 MB). A larger file in a bucket is verified while it
        is sent, and the response is cut short when the file is damaged. Raises `InvalidRequest` when the file
        does not exist, `FileDamaged` and `FilesUnavailable`.
        """
        found = None
        if schemas.is_id(media_id):
            async with self._database.reading() as connection:
                found = await media.find(connection, caller.account, media_id)
        if found is None:
            raise _unknown()
        now = self._clock.now_ms()
        if found.used_at < now - TOUCH_AFTER_MS:
            await self._database.persist(lambda connection: media.touch(connection, [media_id], now), retry_seconds=5.0)
        try:
            reader = await self._checked(found)
        except FileGone:
            log.error("media.file_gone", extra={"media": media_id, "file": found.file})
            raise _unknown() from None
        except OSError as error:
            raise away(error) from error
        if reader is None:
            note_damaged(found)
            raise FileDamaged()
        return found, reader

    async def _checked(self, found: MediaRow) -> MediaReader | None:
        """Return a reader at the start of the file; `None` when the file differs from what was stored.

        Raises `FileGone` and `OSError`.
        """
        file = await self._files.open(found.file)
        async with contextlib.AsyncExitStack() as held:
            held.push_async_callback(file.reader.close)
            if file.size != found.size:
                return None
            if found.size <= IN_MEMORY:
                content = await file.reader.read(found.size)
                return BytesReader(content) if hashlib.sha256(content).hexdigest() == found.sha256 else None
            if not self._files.is_local:
                # Fetching the file twice would double the cost.
                held.pop_all()
                return CheckedReader(file.reader, found)
            if await _hash(file.reader) != found.sha256:
                return None
        return await open_reader(self._files, found.file)

    async def resolve(self, caller: Caller, cloud_id: str) -> str | None:
        """Return our own id of a file by its id in the Cloud API; `None` for an unknown or expired file.

        cloud_id: in the form that `media_ids.is_media_id` accepts
        """
        found = await self.describe(caller, cloud_id)
        return found.id if found is not None else None

    async def describe(self, caller: Caller, cloud_id: str) -> MediaRow | None:
        """Return the row of a file by its id in the Cloud API; `None` for an unknown or expired file."""
        async with self._database.reading() as connection:
            found = await media.list_by_prefix(connection, caller.account, media_ids.prefix(cloud_id), limit=2)
        if len(found) > 1:
            log.error("media.ids_collide", extra={"media": [entry.id for entry in found]})
        return found[0] if len(found) == 1 and self._is_known(found[0]) else None

    async def find(self, accounts: Sequence[str], media_id: str) -> MediaRow | None:
        """Return the row of a file by our own id; `None` for an unknown file, or one that expired in the Cloud API.

        accounts: numbers, one of which the file must belong to
        """
        async with self._database.reading() as connection:
            found = await media.find_of_any(connection, accounts, media_id)
        return found if found is not None and self._is_known(found) else None

    def _is_known(self, found: MediaRow) -> bool:
        """Return whether a file has not expired in the Cloud API."""
        return found.cloud_expires_at is None or self._clock.now() * 1000 < found.cloud_expires_at

    async def delete(self, caller: Caller, media_id: str) -> None:
        """Delete a file. Raises `InvalidRequest` when it does not exist."""
        taken = None
        if schemas.is_id(media_id):
            taken = await self._database.commit(lambda connection: media.take(connection, caller.account, media_id))
        if taken is None:
            raise _unknown()
        # If the process is killed here, the file is an orphan, which the next collection deletes.
        await delete_files(self._files, [taken.file])
        log.info("media.deleted", extra={"media": media_id, "username": caller.username})

    async def _keep(
        self, caller: Caller, media_type: MediaType, stored: StoredObject, key: str, cloud_ms: int | None
    ) -> str:
        """Insert the row of a file that is on disk. Returns its id.

        Returns the first id for a repeated idempotency key. When the database fails the file stays, since the row may
        exist. An orphan is collected later.
        """
        now = self._clock.now_ms()
        row = MediaRow(
            id=str(uuid.uuid4()),
            account=caller.account,
            kind=media_type.kind,
            mime_type=media_type.text,
            size=stored.size,
            sha256=stored.sha256,
            file=stored.name,
            filename="",
            created_at=now,
            used_at=now,
            cloud_expires_at=now + cloud_ms if cloud_ms is not None else None,
        )
        fingerprint = hashlib.sha256(f"{media_type.text}\n{stored.sha256}".encode()).digest()
        used = idempotency.key_of(caller.username, key)
        use = UsedKey(caller.account, MEDIA, used.shared, fingerprint, row.id, now)

        first = await self._rows.submit((row, (used, use) if key else None))
        if first is not None and first.answer != row.id:
            await delete_files(self._files, [stored.name])
            if not hmac.compare_digest(first.fingerprint, fingerprint):
                raise IdempotencyKeyReused()
            return first.answer
        return row.id

    async def _write(
        self, rows: Sequence[tuple[MediaRow, tuple[IdempotencyKey, UsedKey] | None]]
    ) -> Sequence[UsedKey | None]:
        """Insert rows, and return the first use of each row's idempotency key; `None` without a key."""

        async def work(connection: Connection) -> Sequence[UsedKey | None]:
            first = [
                await idempotency.claim(connection, *use, use[1].created_at - idempotency.LIFETIME_MS) if use else None
                for _, use in rows
            ]
            kept = [row for (row, _), use in zip(rows, first, strict=True) if use is None or use.answer == row.id]
            await media.add_all(connection, kept)
            return first

        return await self._database.persist(work, retry_seconds=5.0)


async def delete_files(files: FileStore, names: Sequence[str]) -> None:
    """Delete files that no row names. A file that cannot be deleted now is an orphan, which is collected later."""
    try:
        await files.delete(names)
    except OSError as error:
        log.warning("media.not_deleted", extra={"error": repr(error)})


async def _hash(reader: MediaReader) -> str:
    digest = hashlib.sha256()
    while block := await reader.read(IN_MEMORY):
        await asyncio.to_thread(digest.update, block)
    return digest.hexdigest()


def _refusal(error: UnusableType | FileTooLarge | FileEmpty | DiskFull) -> APIError:
    if isinstance(error, FileTooLarge):
        return BodyTooLarge(error.limit)
    if isinstance(error, FileEmpty):
        return InvalidRequest.because(PARAMETER_MISSING, f"body: {error}")
    if isinstance(error, DiskFull):
        log.error("media.disk_full")
        return full(error)
    return InvalidRequest.because(PARAMETER_INVALID, f"body: {error}")


def full(error: DiskFull) -> Overloaded:
    """Return the error for the client when the disk of the file store is full."""
    return Overloaded(str(error), retry_after=_FULL_RETRY)


def away(error: OSError) -> FilesUnavailable:
    """Log that the file store is unavailable, and return the error for the client."""
    log.error("media.store_away", extra={"error": repr(error)})
    return FilesUnavailable()


def read_type(content_type: str | None) -> MediaType:
    """Parse the declared type of a file. Raises `InvalidRequest`."""
    if content_type is None or not content_type.strip():
        raise InvalidRequest.because(PARAMETER_MISSING, "Content-Type: is missing")
    try:
        return kinds.parse(content_type)
    except UnusableType as error:
        raise InvalidRequest.because(PARAMETER_INVALID, f"Content-Type: {error}") from None


def _unknown() -> InvalidRequest:
    return InvalidRequest.because(NOT_FOUND, "there is no media with this id")
