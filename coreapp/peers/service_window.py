"""Service window: time of each recipient's last message. For 24 hours after it a business may send anything, later only
templates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from coreapp.context import ShardContext
from coreapp.conversations import TEMPLATES
from tidings.aio.batcher import Batcher
from tidings.aio.lru import LRU
from tidings.storage import outages
from tidings.storage.business import service_windows

WINDOW = 24 * 3600.0  # seconds
RETRY_SECONDS = 4.0  # seconds that a caller waits for an unreachable database
CACHED = 100_000  # recipients


@dataclasses.dataclass(eq=False, repr=False)
class ServiceWindow:
    """Times of the recipients' last messages, which open the service windows of one account."""

    context: ShardContext

    def __post_init__(self) -> None:
        # Time of the last message, Unix milliseconds; 0 for a recipient that never wrote.
        self._last_message_at: LRU[str, int] = LRU(CACHED)
        self._reads: Batcher[str, int] = Batcher("threads-read", self._read, max_size=1000)

    def needs_window(self, kind: str) -> bool:
        """Return whether a message of this kind may be sent only while the window is open."""
        return self.context.settings.reengagement_window and kind not in TEMPLATES

    async def is_open(self, peer: str) -> bool:
        """Return whether the recipient wrote within the last 24 hours."""
        last = self._last_message_at.get(peer)
        if last is None:
            last = await outages.within(RETRY_SECONDS, self._reads.put(peer))
        return last / 1000 > self.context.clock.now() - WINDOW

    def record(self, last_message_at: Mapping[str, int]) -> None:
        """Record the times of recipients' messages, which are on disk.

        last_message_at: Unix milliseconds by recipient
        """
        for peer, time in last_message_at.items():
            self._last_message_at.put(peer, max(time, self._last_message_at.get(peer) or 0))

    async def _read(self, peers: Sequence[str]) -> Sequence[int]:
        found = await self.context.database.query(
            lambda connection: service_windows.list_last_message_at(
                connection, self.context.account, list(dict.fromkeys(peers))
            ),
            retry_seconds=RETRY_SECONDS,
        )
        # A recipient may have written during the read.
        self.record({peer: found.get(peer, 0) for peer in peers})
        return [self._last_message_at.get(peer) or found.get(peer, 0) for peer in peers]
