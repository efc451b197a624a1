"""Deletion of files that have not been used for a number of days, and of files without a row."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence

from coreapp.retention import DELETED, MEDIA
from tidings.aio.clock import Clock
from tidings.objects.store import FileStore
from tidings.storage.business import media, shards
from tidings.storage.business.media import MediaRow
from tidings.storage.business.shards import Lease
from tidings.storage.database import Connection, Database

UNUSED_MS = 30 * 24 * 3600 * 1000  # default retention of unused files: 30 days in milliseconds
# age in seconds from which a file without a row counts as orphan; a file is written before its row
ORPHAN_SECONDS = 24 * 3600.0
PAGE = 500  # rows that one transaction reads
PAUSE = 0.01  # seconds between two pages, to leave time to concurrent sends


class MediaCollector:
    """Deletes rows, then their files. A crash between the two leaves orphans for the next pass.

    A file in use always has its row, because rows are touched before they are used.
    """

    def __init__(
        self,
        database: Database,
        lease: Lease,
        files: FileStore,
        *,
        working: FileStore | None = None,
        clock: Clock,
        account: str,
        unused_ms: int = UNUSED_MS,
        page: int = PAGE,
    ) -> None:
        """Create the collector of one account.

        working: store of local files in transfer, from which only orphans are deleted; None where it is the same store
            as `files`
        unused_ms: milliseconds that a file is kept after its last use; 0 keeps it forever
        page: rows that one transaction reads
        """
        self._database = database
        self._lease = lease
        self._files = files
        self._working = working
        self._clock = clock
        self._account = account
        self._unused_ms = unused_ms
        self._page = page

    async def __call__(self) -> int:
        """Delete unused files and orphans. Returns their number. Raises `LeaseLost`."""
        deleted = await self._delete_unused() + await self._delete_orphans()
        DELETED.labels(MEDIA).inc(deleted)
        return deleted

    async def _delete_unused(self) -> int:
        if not self._unused_ms:
            return 0
        before = int(self._clock.now() * 1000) - self._unused_ms
        after, total = "", 0
        while True:
            list_unused = functools.partial(media.list_unused, account=self._account, before=before, after=after)
            page = await self._database.query(functools.partial(list_unused, limit=self._page))
            if not page:
                return total
            after = page[-1].id
            gone = set(await self._database.persist(functools.partial(self._forget, page=page, before=before)))
            await self._files.delete([entry.file for entry in page if entry.id in gone])
            total += len(gone)
            await asyncio.sleep(PAUSE)

    async def _forget(self, connection: Connection, page: Sequence[MediaRow], before: int) -> Sequence[str]:
        await shards.fence(connection, self._lease)
        return await media.delete_unused(connection, [entry.id for entry in page], before)

    async def _delete_orphans(self) -> int:
        total = await self._delete_orphans_of(self._files)
        return total + (await self._delete_orphans_of(self._working) if self._working is not None else 0)

    async def _delete_orphans_of(self, files: FileStore) -> int:
        total = 0
        async for names in files.list_old(self._clock.now() - ORPHAN_SECONDS):
            # Fenced, because all processes share the store.
            list_known = functools.partial(media.list_known_files, names=names)
            known = await self._database.persist(shards.fenced(self._lease, list_known))
            total += await files.delete([name for name in names if name not in known])
            await asyncio.sleep(PAUSE)
        return total
