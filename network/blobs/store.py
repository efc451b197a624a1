"""Blobs: files in a directory, and rows that say whose they are and until when they are kept.

Order of writing: the file is on disk before its row is committed, and a row is gone before its file is removed. So
whatever is killed when, there is no row without its file; a file without a row is an orphan, which the sweeper removes.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator
from typing import BinaryIO

from prometheus_client import Counter

from network.blobs.quota import Quota, Reservation
from network.errors import BadRequest, Full, NotFound, TooLarge
from tidings.media.errors import DiskFull, FileEmpty, FileGone, FileTooLarge
from tidings.media.files import Files
from tidings.runtime import crashpoints
from tidings.runtime.clock import Clock
from tidings.storage.database import Database
from tidings.storage.network import blobs
from tidings.storage.network.blobs import Blob

log = logging.getLogger(__name__)

STORED = Counter("tidings_network_blobs_stored_total", "Blobs stored")

# A document of 100 MiB as ciphertext, and some.
MAX_SIZE = 101 * 1024 * 1024


class BlobStore:
    """The blobs of the network."""

    def __init__(
        self,
        database: Database,
        files: Files,
        clock: Clock,
        *,
        quota: int,
        device_quota: int,
        ttl: int,
        max_size: int = MAX_SIZE,
    ) -> None:
        """quota: bytes of all blobs; device_quota: of one owner's; ttl: seconds that each is kept; max_size: bytes of
        one."""
        self._database = database
        self._clock = clock
        self._ttl = ttl
        self._max_size = max_size
        self.files = files
        self.quota = Quota(quota, device_quota)

    async def open(self) -> None:
        """Make the directory and count what is there. Raises `OSError`."""
        self.files.prepare()
        await self.count()

    async def count(self) -> None:
        """Count the bytes of all blobs again."""
        self.quota.count(await self._database.query(blobs.total_size, patience=20))

    async def add(self, owner: str, body: AsyncIterator[bytes], size: int | None, *, weight: int = 1) -> Blob:
        """Keep a blob; file and row are on disk when this returns.

        size: bytes, as far as they were announced; weight: how many times the quota of others the owner has.
        Raises `TooLarge`, `BadRequest` when it is empty, `Full`, `QuotaUsed`, and what the body raises; nothing is left
        then.
        """
        if size is not None and size > self._max_size:
            raise TooLarge(f"a blob of at most {self._max_size} bytes is taken")
        owned = await self._database.query(lambda connection: blobs.owned_size(connection, owner), patience=20)
        with self.quota.reservation(owner, owned, size or 0, weight=weight) as reservation:
            try:
                stored = await self.files.write(_counted(body, reservation), limit=self._max_size)
            except FileTooLarge as error:
                raise TooLarge(f"a blob of at most {self._max_size} bytes is taken") from error
            except FileEmpty as error:
                raise BadRequest("the blob is empty") from error
            except DiskFull as error:
                log.error("blobs.disk_full", extra={"directory": str(self.files.directory)})
                raise Full("the disk of the network is full; its operator has to make room") from error
            crashpoints.reach(crashpoints.AFTER_FILE_BEFORE_ROW)
            blob = Blob(secrets.token_urlsafe(32), owner, stored.name, stored.size, self.now() + self._ttl * 1000)
            # After a commit of unknown outcome the file stays: with a row it is needed, without it is an orphan.
            await self._database.persist(lambda connection: blobs.add(connection, blob), patience=20)
            self.quota.count(self.quota.stored + stored.size)
        STORED.inc()
        return blob

    async def fetch(self, id: str) -> tuple[Blob, BinaryIO]:
        """A blob and its file, opened: it can be read to its end even when it expires meanwhile. Raises `NotFound`."""
        blob = await self._database.query(lambda connection: blobs.find(connection, id, now=self.now()), patience=20)
        if blob is None:
            raise NotFound("there is no such blob, or not any more")
        try:
            return blob, self.files.open(blob.file)
        except FileGone as error:
            # Expired and removed since, or somebody else has been at the directory.
            if blob.expires_at > self.now():
                log.error("blob.file_missing", extra={"owner": blob.owner, "file": blob.file})
            raise NotFound("there is no such blob, or not any more") from error

    def now(self) -> int:
        """Unix milliseconds."""
        return int(self._clock.now() * 1000)


async def _counted(body: AsyncIterator[bytes], reservation: Reservation) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in body:
        size += len(chunk)
        reservation.grow(size)
        yield chunk
