"""Deletion of the kept contents of messages that were never delivered."""

from __future__ import annotations

import asyncio
import functools

from coreapp.retention import PAGE, PAUSE
from tidings.aio.clock import Clock
from tidings.storage.business import messages, shards
from tidings.storage.business.shards import Lease
from tidings.storage.database import Connection, Database
from tidings.wire import ids

KEPT = "kept"
KEPT_SECONDS = 30 * 86_400  # 30 days in seconds: as long as the network keeps an envelope


class KeptCollector:
    """Deletes expired kept contents of the installation, one page per transaction. Runs at the owner of the first
    shard. Each pass continues where the last one ended.
    """

    def __init__(self, database: Database, lease: Lease, clock: Clock) -> None:
        self._database = database
        self._lease = lease
        self._clock = clock
        self._after = ""

    async def __call__(self) -> int:
        """Delete expired contents. Returns 0, because no row is deleted. Raises `LeaseLost`."""
        before = ids.bound(self._clock.now() - KEPT_SECONDS)
        while (last := await self._database.persist(functools.partial(self._page, before=before))) is not None:
            self._after = last
            await asyncio.sleep(PAUSE)
        self._after = max(self._after, before)
        return 0

    async def _page(self, connection: Connection, *, before: str) -> str | None:
        await shards.fence(connection, self._lease)
        return await messages.forget_kept(connection, after=self._after, before=before, limit=PAGE)
