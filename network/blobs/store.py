"""Blobs: files in a directory or bucket, with rows for their owners and expiry.

The file is on disk before its row is committed, and a row is deleted before its file. So after a crash at any time no
row is without its file. A file without a row is an orphan, which the sweeper removes.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence

from prometheus_client import Counter

from network.blobs.quota import BlobQuota
from network.errors import BadRequest, Full, NotFound, TooLarge, Unavailable
from network.settings import BlobSettings
from tidings.aio import crashpoints
from tidings.aio.batcher import Batcher
from tidings.aio.clock import Clock
from tidings.media.errors import DiskFull, FileEmpty, FileGone, FileTooLarge, StoreAway
from tidings.media.reading import MediaReader
from tidings.objects.store import FileStore
from tidings.storage.database import Database
from tidings.storage.network import blobs
from tidings.storage.network.blobs import Blob

log = logging.getLogger(__name__)

STORED = Counter("tidings_network_blobs_stored_total", "Blobs stored")

# Maximum bytes of a blob: a document of 100 MiB as ciphertext, with some margin.
MAX_SIZE = 101 * 1024 * 1024
# Bytes of a blob in memory at a time while it is downloaded; most blobs are no larger.
CHUNK = 256 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class OpenBlob:
    """Blob that can be read to its end, even when it expires during the read."""

    blob: Blob
    head: bytes  # First bytes, at most `CHUNK`.
    file: MediaReader  # Positioned behind `head`; the caller closes it.


@dataclasses.dataclass(slots=True, eq=False)
class BlobStore:
    """Blobs of the network."""

    database: Database
    files: FileStore
    clock: Clock
    settings: BlobSettings
    max_size: int = MAX_SIZE  # Bytes of one blob.
    quota: BlobQuota = dataclasses.field(init=False)
    _rows: Batcher[Blob, None] = dataclasses.field(init=False)
    _wanted: Batcher[str, Blob | None] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.quota = BlobQuota(self.settings.quota, self.settings.device_quota)
        self._rows = Batcher("blobs", self._write)
        self._wanted = Batcher("blobs_wanted", self._read, max_in_flight=2)

    async def open(self) -> None:
        """Create the directory and count the stored bytes. Raises `OSError`."""
        self.files.prepare()
        await self.count()

    async def count(self) -> None:
        """Count the bytes of all blobs again."""
        self.quota.count(await self.database.query(blobs.total_size, patience=20))

    async def add(self, owner: str, body: AsyncIterator[bytes], size: int | None, *, weight: int = 1) -> Blob:
        """Store a blob; file and row are on disk when this returns.

        Raises `TooLarge`, `BadRequest` for an empty blob, `Full`, `QuotaUsed`, `Unavailable` while the files cannot be
        reached, and the errors of the body. Then no blob is stored.

        size: announced bytes; `None` when they are not known.
        weight: factor by which the owner's quota is multiplied.
        """
        if size is not None and size > self.max_size:
            raise TooLarge(f"a blob may have at most {self.max_size} bytes")
        owned = await self._owned(owner, size or 0, weight)
        with self.quota.reservation(owner, owned, size or 0, weight=weight) as grow:
            try:
                stored = await self.files.write(_counted(body, grow), limit=self.max_size)
            except FileTooLarge as error:
                raise TooLarge(f"a blob may have at most {self.max_size} bytes") from error
            except FileEmpty as error:
                raise BadRequest("the blob is empty") from error
            except DiskFull as error:
                log.error("blobs.disk_full", extra={"store": self.files.location})
                raise Full("the disk of the network is full; its operator must free space") from error
            except StoreAway as error:
                raise self._away(error) from error
            crashpoints.reach(crashpoints.AFTER_FILE_BEFORE_ROW)
            blob = Blob(
                secrets.token_urlsafe(32), owner, stored.name, stored.size, self.now() + self.settings.ttl * 1000
            )
            # After a commit of unknown outcome the file is kept: its row, if it exists, needs it; otherwise it is an
            # orphan.
            await self._rows.submit(blob)
            self.quota.add(owner, stored.size)
        STORED.inc()
        return blob

    async def fetch(self, id: str) -> OpenBlob:
        """Return an open blob. Raises `NotFound`, and `Unavailable` while the files cannot be reached."""
        blob = await self._wanted.submit(id)
        if blob is None:
            raise NotFound("there is no such blob, or it has expired")
        try:
            return await self._open(blob)
        except FileGone as error:
            # It has expired and was removed, or another program has changed the directory.
            if blob.expires_at > self.now():
                log.error("blob.file_missing", extra={"owner": blob.owner, "file": blob.file})
            raise NotFound("there is no such blob, or it has expired") from error
        except OSError as error:
            raise self._away(error) from error

    def now(self) -> int:
        """Return Unix milliseconds."""
        return int(self.clock.now() * 1000)

    def _away(self, error: OSError) -> Unavailable:
        log.error("blobs.store_away", extra={"store": self.files.location, "error": repr(error)})
        return Unavailable("the blobs cannot be reached", retry_after=5)

    async def _owned(self, owner: str, size: int, weight: int) -> int:
        share = self.quota.share(owner, size, weight=weight)
        if share.counted is None:
            counted = await self.database.query(lambda connection: blobs.owned_size(connection, owner), patience=20)
            # Keep the first of several counts: `added` has the commits since that one started.
            share.counted = counted if share.counted is None else share.counted
        return share.size

    async def _open(self, blob: Blob) -> OpenBlob:
        file = (await self.files.open(blob.file)).reader
        try:
            return OpenBlob(blob, await file.read(CHUNK), file)
        except BaseException:
            await file.close()
            raise

    async def _write(self, rows: Sequence[Blob]) -> Sequence[None]:
        await self.database.persist(lambda connection: blobs.add(connection, rows), patience=20)
        return [None] * len(rows)

    async def _read(self, ids: Sequence[str]) -> Sequence[Blob | None]:
        now = self.now()
        found = await self.database.query(lambda connection: blobs.find(connection, ids, now=now), patience=20)
        return [found.get(id) for id in ids]


async def _counted(body: AsyncIterator[bytes], grow: Callable[[int], None]) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in body:
        size += len(chunk)
        grow(size)
        yield chunk
