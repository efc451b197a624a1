"""Blobs: files in a directory or bucket, with rows for their owners and expiry.

The file is on disk before its row is committed, and a row is deleted before its file. So after a crash at any time no
row is without its file. A file without a row is an orphan, which the sweeper removes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

from prometheus_client import Counter, Gauge

from network.errors import BadRequest, Full, NotFound, QuotaExceeded, TooLarge, Unavailable
from network.settings import BlobSettings
from tidings.aio import crashpoints
from tidings.aio.batcher import Batcher
from tidings.aio.clock import Clock
from tidings.aio.lru import LRU
from tidings.aio.quota import Quota, QuotaUsage
from tidings.aio.service import wait_for
from tidings.media.errors import DiskFull, FileEmpty, FileGone, FileTooLarge, StoreUnavailable
from tidings.media.reading import MediaReader
from tidings.objects.store import FileStore
from tidings.storage import outages
from tidings.storage.database import Connection, Database
from tidings.storage.network import blobs
from tidings.storage.network.blobs import Blob

USED = Gauge("tidings_network_blobs_bytes", "Bytes of stored blobs")
USED_UP = Counter(
    "tidings_network_blob_quota_used_total", "Blobs refused because their number has stored too many bytes"
)

# Owners whose bytes are cached; those of others are counted at their next upload.
REMEMBERED = 20_000
# An owner's bytes are counted again once this process has added a sixteenth of the free quota. So up to 16 nodes, which
# do not know each other's uploads, keep to the quota.
UNCOUNTED_DIVISOR = 16


@dataclasses.dataclass(slots=True)
class OwnerUsage:
    """Stored bytes of one owner."""

    # Bytes of its rows; `None` until they are counted.
    counted: int | None = None
    # Bytes that this process has committed since that count started, some of which the count may include.
    added: int = 0

    @property
    def size(self) -> int:
        """Return the bytes, at least as many as this process has stored."""
        return (self.counted or 0) + self.added


class BlobQuota:
    """Quota of all blobs, and of the blobs of each owner; an owner never has more than is still free.

    stored: bytes of all rows at the last count, and of uploads since.
    added: bytes that this process has committed since its start.
    """

    def __init__(self, limit: int, owner_limit: int) -> None:
        """limit: bytes of all owners together.
        owner_limit: bytes of one owner.
        """
        self._limit = limit
        self._owner_limit = owner_limit
        self._reserved: QuotaUsage[str] = QuotaUsage()
        self._usages: LRU[str, OwnerUsage] = LRU(REMEMBERED)
        self.stored = 0
        self.added = 0

    def count(self, stored: int, *, since: int) -> None:
        """Set the bytes of all rows after a count. Commits during the count may count twice until the next one.

        The counts of owners are dropped, since some of their rows may have been deleted.

        since: `added` when the count started
        """
        self.stored = stored + self.added - since
        USED.set(self.stored)
        self._usages.clear()

    def add(self, owner: str, size: int) -> None:
        """Add `size` committed bytes of this owner."""
        self.added += size
        self.stored += size
        USED.set(self.stored)
        usage = self._usages.get(owner)
        if usage is not None:
            usage.added += size

    def usage_of(self, owner: str, size: int = 0, *, weight: int = 1) -> OwnerUsage:
        """Return the usage of an owner. If `counted` is `None`, the caller must count the bytes now.

        size, weight: as for `reservation`.
        """
        usage = self._usages.get(owner)
        if usage is None or self._is_outdated(usage, owner, size, weight):
            usage = OwnerUsage()
            self._usages.put(owner, usage)
        return usage

    def _is_outdated(self, usage: OwnerUsage, owner: str, size: int, weight: int) -> bool:
        if usage.counted is None:
            return False
        left = self._quota(weight).each - usage.counted
        return (usage.added + self._reserved.of(owner) + size) * UNCOUNTED_DIVISOR > left

    @contextlib.contextmanager
    def reservation(self, owner: str, owned: int, size: int = 0, *, weight: int = 1) -> Iterator[Callable[[int], None]]:
        """Reserve room for an upload until the end of the block. Raises `Full` and `QuotaExceeded` when there is none.

        The block gets a function that grows the reservation to a number of bytes, and raises the same errors.

        owned: bytes that the owner has stored.
        size: bytes of the upload, 0 when that is not known.
        weight: factor by which the owner's quota is multiplied.
        """
        reserved = 0

        def grow(size: int) -> None:
            nonlocal reserved
            if size > reserved:
                self._reserve(owner, owned, size - reserved, weight)
                reserved = size

        try:
            grow(size)
            yield grow
        finally:
            self._reserved.remove(owner, reserved)

    def _quota(self, weight: int) -> Quota:
        return Quota(self._limit, min(self._owner_limit * weight, self._limit), is_fair=weight == 1)

    def _reserve(self, owner: str, owned: int, size: int, weight: int) -> None:
        total = self.stored + self._reserved.total
        if total + size > self._limit:
            raise Full("the blob store is full; the operator of the network must free space")
        if not self._quota(weight).has_room(total, owned + self._reserved.of(owner), size):
            USED_UP.inc()
            raise QuotaExceeded("this number has reached its limit of stored bytes; space is free when a blob expires")
        self._reserved.add(owner, size)


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
    _inserts: Batcher[Blob, None] = dataclasses.field(init=False)
    _lookups: Batcher[str, Blob | None] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.quota = BlobQuota(self.settings.quota, self.settings.device_quota)
        self._inserts = Batcher("blobs", self._write)
        self._lookups = Batcher("blobs_wanted", self._read, max_in_flight=2)

    async def open(self) -> None:
        """Create the directory and count the stored bytes. Raises `OSError`."""
        self.files.prepare()
        await self.count()

    async def count(self) -> None:
        """Count the bytes of all blobs again."""
        since = self.quota.added
        self.quota.count(await self.database.query(blobs.total_size, retry_seconds=20), since=since)

    async def add(self, owner: str, body: AsyncIterator[bytes], size: int | None, *, weight: int = 1) -> Blob:
        """Store a blob; file and row are on disk when this returns.

        Raises `TooLarge`, `BadRequest` for an empty blob, `Full`, `QuotaExceeded`, `Unavailable` while the files cannot
        be reached, and the errors of the body. Then no blob is stored.

        size: announced bytes; `None` when they are not known.
        weight: factor by which the owner's quota is multiplied.
        """
        if size is not None and size > self.max_size:
            raise TooLarge(f"a blob may have at most {self.max_size} bytes")
        owned = await self._owned_bytes(owner, size or 0, weight)
        with self.quota.reservation(owner, owned, size or 0, weight=weight) as grow:
            try:
                stored = await self.files.write(_growing(body, grow), limit=self.max_size)
            except FileTooLarge as error:
                raise TooLarge(f"a blob may have at most {self.max_size} bytes") from error
            except FileEmpty as error:
                raise BadRequest("the blob is empty") from error
            except DiskFull as error:
                log.error("blobs.disk_full", extra={"store": self.files.location})
                raise Full("the disk of the network is full; its operator must free space") from error
            except StoreUnavailable as error:
                raise self._unavailable(error) from error
            crashpoints.reach(crashpoints.AFTER_FILE_BEFORE_ROW)
            blob = Blob(
                secrets.token_urlsafe(32), owner, stored.name, stored.size, self.now() + self.settings.ttl * 1000
            )
            try:
                await self._inserts.submit(blob)
            except Exception as error:
                # After a commit of unknown outcome the file is kept: its row, if it exists, needs it; otherwise it is
                # an orphan.
                if not outages.may_be_committed(error):
                    with contextlib.suppress(OSError):
                        await self.files.delete([stored.name])
                raise
            self.quota.add(owner, stored.size)
        STORED.inc()
        return blob

    async def fetch(self, id: str) -> OpenBlob:
        """Return an open blob. Raises `NotFound`, and `Unavailable` while the files cannot be reached."""
        blob = await self._lookups.submit(id)
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
            raise self._unavailable(error) from error

    def now(self) -> int:
        """Return Unix milliseconds."""
        return self.clock.now_ms()

    def _unavailable(self, error: OSError) -> Unavailable:
        log.error("blobs.store_away", extra={"store": self.files.location, "error": repr(error)})
        return Unavailable("the blobs cannot be reached", retry_after=5)

    async def _owned_bytes(self, owner: str, size: int, weight: int) -> int:
        usage = self.quota.usage_of(owner, size, weight=weight)
        if usage.counted is None:
            counted = await self.database.query(
                lambda connection: blobs.owned_size(connection, owner), retry_seconds=20
            )
            # Keep the first of several counts: `added` has the commits since that one started.
            usage.counted = counted if usage.counted is None else usage.counted
        return usage.size

    async def _open(self, blob: Blob) -> OpenBlob:
        file = (await self.files.open(blob.file)).reader
        try:
            return OpenBlob(blob, await file.read(CHUNK), file)
        except BaseException:
            await file.close()
            raise

    async def _write(self, rows: Sequence[Blob]) -> Sequence[None]:
        await self.database.persist(lambda connection: blobs.add(connection, rows), retry_seconds=20)
        return [None] * len(rows)

    async def _read(self, ids: Sequence[str]) -> Sequence[Blob | None]:
        now = self.now()
        found = await self.database.query(lambda connection: blobs.find(connection, ids, now=now), retry_seconds=20)
        return [found.get(id) for id in ids]


async def _growing(body: AsyncIterator[bytes], grow: Callable[[int], None]) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in body:
        size += len(chunk)
        grow(size)
        yield chunk


SWEPT = Counter("tidings_network_blobs_swept_total", "Files removed", ["why"])

INTERVAL = 60.0  # Seconds between two passes.
BATCH = 200  # Blobs per transaction.
# Age in seconds, since the last write, at which a file without a row counts as an orphan: longer than any transfer and
# the wait for the database after it.
ORPHAN_SECONDS = 3600.0
# Passes between two searches of the whole directory; the first pass has one, too.
ORPHAN_PASSES = 30


@dataclasses.dataclass(slots=True, eq=False)
class BlobSweeper:
    """Service that removes expired blobs once a minute, and orphaned files every 30 minutes."""

    name = "blobs"

    database: Database
    store: BlobStore
    batch: int = BATCH  # Blobs removed per transaction.
    _passes: int = 0

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._try(self.run_once)
            # Also while the database refuses writes: failed uploads leave orphans then.
            if self._passes % ORPHAN_PASSES != 0 or await self._try(self.remove_orphans):
                self._passes += 1
            await wait_for(stop, INTERVAL)

    async def _try(self, step: Callable[[], Awaitable[int]]) -> bool:
        try:
            await step()
        except Exception as error:
            if not outages.is_outage(error) and not isinstance(error, OSError):
                raise
            log.warning("blobs.sweep_failed", extra={"error": repr(error)[:200]})
            return False
        return True

    async def run_once(self) -> int:
        """Remove expired blobs, rows before files; return the number of blobs."""
        total = 0
        while True:
            gone = await self.database.persist(self._take_expired, retry_seconds=20)
            await self.store.files.delete([blob.file for blob in gone])
            total += len(gone)
            if len(gone) < self.batch:
                break
        if total:
            SWEPT.labels("expired").inc(total)
            log.info("blobs.expired", extra={"count": total})
        await self.store.count()
        return total

    async def remove_orphans(self) -> int:
        """Remove old files without a row, unfinished ones too; return their number."""
        total = 0
        async for names in self.store.files.list_old(self.store.now() / 1000 - ORPHAN_SECONDS):
            known = await self.database.query(functools.partial(blobs.list_files, files=names), retry_seconds=20)
            total += await self.store.files.delete([name for name in names if name not in known])
        if total:
            SWEPT.labels("orphan").inc(total)
            log.info("blobs.orphans_removed", extra={"count": total})
        return total

    async def _take_expired(self, connection: Connection) -> list[Blob]:
        found = await blobs.list_expired(connection, now=self.store.now(), limit=self.batch)
        await blobs.delete(connection, [blob.id for blob in found])
        return found
