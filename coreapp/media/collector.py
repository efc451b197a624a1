"""Deletion of files that have not been used for a number of days, and of files without a row."""

from __future__ import annotations

import asyncio
import dataclasses
import functools

from coreapp.context import ShardStore
from coreapp.retention import DELETED, MEDIA
from tidings.objects.store import FileStore
from tidings.storage.business import media

UNUSED_MS = 30 * 24 * 3600 * 1000  # default retention of unused files: 30 days in milliseconds
# age in seconds from which a file without a row counts as orphan; a file is written before its row
ORPHAN_SECONDS = 24 * 3600.0
PAGE = 500  # rows that one transaction reads
PAUSE = 0.01  # seconds between two pages, to leave time to concurrent sends


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class MediaCollector:
    """Deletes rows, then their files. A crash between the two leaves orphans for the next pass.

    A file in use always has its row, because rows are touched before they are used.
    """

    store: ShardStore
    files: FileStore
    _: dataclasses.KW_ONLY
    # Store of local files in transfer, from which only orphans are deleted; None where it is the same store as `files`.
    working: FileStore | None = None
    unused_ms: int = UNUSED_MS  # milliseconds that a file is kept after its last use; 0 keeps it forever
    page: int = PAGE  # rows that one transaction reads

    async def __call__(self) -> int:
        """Delete unused files and orphans. Returns their number. Raises `LeaseLost`."""
        deleted = await self._delete_unused() + await self._delete_orphans()
        DELETED.labels(MEDIA).inc(deleted)
        return deleted

    async def _delete_unused(self) -> int:
        if not self.unused_ms:
            return 0
        now = await self.store.time_of_expiry()
        before = now - self.unused_ms
        after, total = "", 0
        while True:
            list_unused = functools.partial(media.list_unused, account=self.store.account, before=before, now=now)
            page = await self.store.database.query(functools.partial(list_unused, after=after, limit=self.page))
            if not page:
                return total
            after = page[-1].id
            ids = [entry.id for entry in page]
            delete_unused = functools.partial(media.delete_unused, ids=ids, before=before, now=now)
            gone = set(await self.store.persist(delete_unused))
            await self.files.delete([entry.file for entry in page if entry.id in gone])
            total += len(gone)
            await asyncio.sleep(PAUSE)

    async def _delete_orphans(self) -> int:
        total = await self._delete_orphans_of(self.files)
        return total + (await self._delete_orphans_of(self.working) if self.working is not None else 0)

    async def _delete_orphans_of(self, files: FileStore) -> int:
        total, now = 0, await self.store.time_of_expiry()
        async for names in files.list_old(now / 1000 - ORPHAN_SECONDS):
            # Fenced, because all processes share the store.
            list_known = functools.partial(media.list_known_files, names=names)
            known = await self.store.persist(list_known)
            total += await files.delete([name for name in names if name not in known])
            await asyncio.sleep(PAUSE)
        return total
