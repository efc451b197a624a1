"""Removal of expired blobs, and of files without a row."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging

from prometheus_client import Counter

from network.blobs.store import BlobStore
from tidings.aio.service import wait_for
from tidings.storage import outages
from tidings.storage.database import Connection, Database
from tidings.storage.network import blobs
from tidings.storage.network.blobs import Blob

log = logging.getLogger(__name__)

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
            try:
                await self.run_once()
                if self._passes % ORPHAN_PASSES == 0:
                    await self.remove_orphans()
                self._passes += 1
            except Exception as error:
                if not outages.is_outage(error) and not isinstance(error, OSError):
                    raise
                log.warning("blobs.sweep_failed", extra={"error": repr(error)[:200]})
            await wait_for(stop, INTERVAL)

    async def run_once(self) -> int:
        """Remove expired blobs, rows before files; return the number of blobs."""
        total = 0
        while True:
            gone = await self.database.persist(self._take_expired, patience=20)
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
            known = await self.database.query(functools.partial(blobs.list_files, files=names), patience=20)
            total += await self.store.files.delete([name for name in names if name not in known])
        if total:
            SWEPT.labels("orphan").inc(total)
            log.info("blobs.orphans_removed", extra={"count": total})
        return total

    async def _take_expired(self, connection: Connection) -> list[Blob]:
        found = await blobs.list_expired(connection, now=self.store.now(), limit=self.batch)
        await blobs.delete(connection, [blob.id for blob in found])
        return found
