"""Messaging limit of the Cloud API: recipients that the numbers of a WABA reach outside their service window in 24
hours.

They are counted in the database, so that the limit holds for all numbers and shards, and after a restart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.peers.service_window import ServiceWindow
from tidings.aio.batcher import Batcher
from tidings.aio.lru import LRU
from tidings.storage import outages
from tidings.storage.business import cloud_reached, numbers
from tidings.storage.business.cloud_reached import DAY_MS
from tidings.storage.database import Connection
from tidings.wire.cloud.codes import SPAM_RATE

RETRY_SECONDS = 4.0  # seconds that a caller waits for an unreachable database
CACHED = 100_000  # recipients
LIMIT_REACHED = (
    "Message failed to send because the business has reached as many recipients within 24 hours as its messaging "
    "limit allows."
)


@dataclasses.dataclass(eq=False, repr=False)
class ReachedRecipients:
    """Recipients of one shard that were counted."""

    context: ShardContext
    window: ServiceWindow

    def __post_init__(self) -> None:
        # Time at which each was counted, Unix milliseconds.
        self._counted: LRU[str, int] = LRU(CACHED)
        self._counts: Batcher[tuple[str, int], int] = Batcher("reached-count", self._count, max_size=500)

    async def admit(self, peer: str, limit: int) -> None:
        """Count a recipient to whom a message is to be sent, unless the service window is open.

        Raises `RequestRefused` over the limit.
        """
        counted_at = self._counted.get(peer)
        if counted_at is not None and counted_at > self.context.now() - DAY_MS:
            return
        if await self.window.is_open(peer):
            return
        counted_at = await outages.within(RETRY_SECONDS, self._counts.put((peer, limit)))
        if not counted_at:
            raise RequestRefused(SPAM_RATE, LIMIT_REACHED)
        self._counted.put(peer, counted_at)

    async def close(self) -> None:
        """Accept no more requests, and finish the pending database accesses that requests wait for."""
        await self._counts.close()

    async def _count(self, wanted: Sequence[tuple[str, int]]) -> Sequence[int]:
        async def work(connection: Connection) -> Sequence[int]:
            owner = await numbers.find_waba_owner(connection, self.context.account)
            return await cloud_reached.admit(connection, owner, wanted, now=self.context.now())

        return await self.context.persist(work, retry_seconds=RETRY_SECONDS)
