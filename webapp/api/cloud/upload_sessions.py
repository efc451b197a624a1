"""Resumable uploads: sessions whose bytes arrive in one request or several, at any Webapp."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Sequence

from tidings.aio.clock import Clock
from tidings.media.errors import DiskFull, FileEmpty, FileGone, FileTooLarge, StoreUnavailable
from tidings.media.kinds import MediaType
from tidings.objects.store import FileStore, StoredObject
from tidings.storage.business import cloud_uploads, numbers
from tidings.storage.business.cloud_uploads import CloudUpload, CloudUploadPart
from tidings.storage.database import Connection, Database
from tidings.wire.cloud import media_ids
from tidings.wire.cloud.identity import derive
from webapp.api.cloud import errors
from webapp.api.media.service import MediaStore, away, delete_files, full, read_type
from webapp.api.media.transfer import TransferSlots
from webapp.auth.tokens import Caller
from webapp.http.errors import InvalidRequest

log = logging.getLogger(__name__)

LIFETIME_MS = 24 * 3600 * 1000
"""Milliseconds until a session expires: the age at which the files of its parts count as orphans."""
MAX_OPEN = 100  # unfinished sessions of a number
MAX_PARTS = 100  # requests that may bring the bytes of one file
_PAGE = 500  # expired sessions that one new session deletes
_BLOCK = 256 * 1024


class UploadSessions:
    """Resumable uploads of the caller's number.

    Each request stores its bytes as a file of the store before it responds. When all bytes are there, they become
    one file, which is kept as an upload of `POST /P/media` is.
    """

    def __init__(
        self, database: Database, files: FileStore, media: MediaStore, *, clock: Clock, max_uploads: int
    ) -> None:
        """max_uploads: requests at the same time whose bytes are stored; a further one is refused with 503"""
        self._database = database
        self._files = files
        self._media = media
        self._clock = clock
        self._slots = TransferSlots("resumable uploads", max_uploads)

    async def start(self, caller: Caller, media_type: MediaType, size: int) -> str:
        """Start a session for a file. Returns its id. Raises `GraphError` for too many sessions."""
        await self._delete_expired(caller)
        now = self._clock.now_ms()
        upload = CloudUpload(_new_id(caller.account), caller.account, media_type.text, size, 0, now)

        async def work(connection: Connection) -> bool:
            # Concurrent calls could exceed the limit.
            await numbers.lock(connection, caller.account)
            if await cloud_uploads.find(connection, caller.account, upload.id, now - LIFETIME_MS) is not None:
                # An earlier attempt has added it.
                return True
            if await cloud_uploads.count_open(connection, caller.account, now - LIFETIME_MS) >= MAX_OPEN:
                return False
            await cloud_uploads.add(connection, upload)
            return True

        if not await self._database.persist(work, retry_seconds=5.0):
            raise errors.invalid(f"{MAX_OPEN} uploads are unfinished; each ends 24 hours after its start")
        log.info("cloud.upload_started", extra={"username": caller.username, "bytes": size})
        return upload.id

    async def find(self, caller: Caller, upload_id: str) -> CloudUpload | None:
        """Return a session of the caller's number; `None` for an unknown or expired one."""
        async with self._database.reading() as connection:
            return await cloud_uploads.find(connection, caller.account, upload_id, self._clock.now_ms() - LIFETIME_MS)

    async def add(
        self, caller: Caller, upload: CloudUpload, offset: int, chunks: AsyncIterator[bytes], *, request_id: str
    ) -> str | None:
        """Store the bytes of one request. Returns the id of the file once it is complete; `None` before.

        If the connection ends early, the bytes that arrived are stored. Raises `GraphError`, `InvalidRequest`,
        `Overloaded` and `FilesUnavailable`.

        offset: position of the first byte in the file
        """
        if offset != upload.received:
            raise _elsewhere(offset, upload.received)
        if upload.media_id is not None:
            return upload.media_id
        if upload.received < upload.size:
            upload = await self._store(caller, upload, chunks)
        return await self._finish(caller, upload, request_id) if upload.received == upload.size else None

    async def _store(self, caller: Caller, upload: CloudUpload, chunks: AsyncIterator[bytes]) -> CloudUpload:
        """Store the bytes of one request as a part. Returns the session with it."""
        async with self._database.reading() as connection:
            if len(await cloud_uploads.list_parts(connection, upload.id)) >= MAX_PARTS:
                raise errors.invalid(f"the file came in {MAX_PARTS} requests and is not complete; start a new upload")
        self._slots.take()
        try:
            stored, cut = await self._write(chunks, upload.size - upload.received)
        finally:
            self._slots.release()
        if stored is not None:
            part = CloudUploadPart(upload.id, upload.received, caller.account, stored.size, stored.name)
            if not await self._database.persist(
                lambda connection: cloud_uploads.append(connection, part), retry_seconds=5
            ):
                await delete_files(self._files, [stored.name])
                known = await self.find(caller, upload.id)
                raise _elsewhere(upload.received, known.received if known is not None else 0)
        if cut is not None:
            raise cut
        assert stored is not None
        changed = await self.find(caller, upload.id)
        if changed is None:
            raise errors.unsupported("POST", f"upload:{upload.id}")
        return changed

    async def _write(
        self, chunks: AsyncIterator[bytes], limit: int
    ) -> tuple[StoredObject | None, InvalidRequest | None]:
        """Write the bytes of one request, and return them with the reason for which they ended early.

        Returns no file where no byte arrived before the connection ended.
        """
        cut: list[InvalidRequest] = []

        async def arrived() -> AsyncIterator[bytes]:
            try:
                async for chunk in chunks:
                    yield chunk
            except InvalidRequest as error:
                cut.append(error)

        try:
            stored = await self._files.write(arrived(), limit=limit)
        except FileTooLarge:
            raise errors.invalid(f"the body is over the {limit} bytes that file_length leaves") from None
        except FileEmpty:
            if cut:
                return None, cut[0]
            raise errors.invalid("the body is empty") from None
        except DiskFull as error:
            raise full(error) from None
        except StoreUnavailable as error:
            raise away(error) from error
        return stored, cut[0] if cut else None

    async def _finish(self, caller: Caller, upload: CloudUpload, request_id: str) -> str:
        """Make one file of the parts. Returns its id. A session whose file cannot be used ends."""
        async with self._database.reading() as connection:
            found = await cloud_uploads.list_parts(connection, upload.id)
        if sum(part.size for part in found) != upload.size:
            return await self._finished_elsewhere(caller, upload)
        try:
            media_id = await self._media.upload(
                caller,
                read_type(upload.mime_type),
                self._read(found),
                request_id=request_id,
                cloud_ms=media_ids.UPLOADED_MS,
            )
        except InvalidRequest as error:
            await self._delete([upload.id])
            raise errors.invalid(error.problems[0].details) from None
        except FileGone:
            return await self._finished_elsewhere(caller, upload)
        first = await self._database.persist(
            lambda connection: cloud_uploads.finish(connection, upload.id, media_id), retry_seconds=5.0
        )
        if first is not None and first != media_id:
            await self._media.delete(caller, media_id)
        await delete_files(self._files, [part.file for part in found])
        return first or media_id

    async def _finished_elsewhere(self, caller: Caller, upload: CloudUpload) -> str:
        """Return the id of the file that another request made. Raises `GraphError` when the session has ended."""
        known = await self.find(caller, upload.id)
        if known is None or known.media_id is None:
            raise errors.unsupported("POST", f"upload:{upload.id}")
        return known.media_id

    async def _read(self, parts: Sequence[CloudUploadPart]) -> AsyncIterator[bytes]:
        """Yield the bytes of parts. Raises `FileGone`, and `StoreUnavailable` when they cannot be read."""
        for part in parts:
            try:
                file = await self._files.open(part.file)
                try:
                    while block := await file.reader.read(_BLOCK):
                        yield block
                finally:
                    await file.reader.close()
            except StoreUnavailable:
                raise
            except OSError as error:
                raise StoreUnavailable(repr(error)) from error

    async def _delete_expired(self, caller: Caller) -> None:
        until = self._clock.now_ms() - LIFETIME_MS
        async with self._database.reading() as connection:
            expired = await cloud_uploads.list_expired(connection, caller.account, until, limit=_PAGE)
        if expired:
            await self._delete(expired)

    async def _delete(self, upload_ids: Sequence[str]) -> None:
        await delete_files(
            self._files,
            await self._database.persist(
                lambda connection: cloud_uploads.delete(connection, upload_ids), retry_seconds=5.0
            ),
        )


def _new_id(account: str) -> str:
    """Return a random id, which starts with the id of the number."""
    return f"{derive(account).phone_number_id}.{secrets.token_urlsafe(24)}"


def number_of(upload_id: str) -> str:
    """Return the id of the number that a session belongs to; any text where the id is of no session."""
    return upload_id.partition(".")[0]


def _elsewhere(given: int, expected: int) -> errors.GraphError:
    return errors.invalid(f"file_offset: is {given}, the next byte of this upload is {expected}")
