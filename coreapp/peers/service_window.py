"""When each recipient last wrote: for 24 hours from then a business may say anything, later only templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coreapp.conversations import TEMPLATES
from tidings.runtime.batcher import Batcher
from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU
from tidings.storage import outages
from tidings.storage.business import service_windows
from tidings.storage.database import Database

WINDOW = 24 * 3600.0  # seconds
PATIENCE = 4.0  # seconds that a caller waits for a database that is away


class ServiceWindow:
    """The threads of one account; enforced: whether the window is looked at."""

    def __init__(
        self, database: Database, clock: Clock, *, account: str, enforced: bool, cache_limit: int = 100_000
    ) -> None:
        self._database = database
        self._clock = clock
        self._account = account
        self._enforced = enforced
        # Unix milliseconds; 0 for one that never wrote.
        self._heard: LRU[str, int] = LRU(cache_limit)
        self._reads: Batcher[str, int] = Batcher("threads-read", self._read, max_size=1000)

    def needs_window(self, kind: str) -> bool:
        """Whether a message of this kind may be sent only while the window is open."""
        return self._enforced and kind not in TEMPLATES

    async def is_open(self, peer: str) -> bool:
        """Whether the recipient wrote within the last 24 hours."""
        heard = self._heard.get(peer)
        if heard is None:
            heard = await outages.within(PATIENCE, self._reads.put(peer))
        return heard / 1000 > self._clock.now() - WINDOW

    def heard(self, heard_at: Mapping[str, int]) -> None:
        """These recipients wrote, at these Unix milliseconds; it is on disk."""
        for peer, time in heard_at.items():
            self._heard.put(peer, max(time, self._heard.get(peer) or 0))

    async def _read(self, peers: Sequence[str]) -> Sequence[int]:
        found = await self._database.query(
            lambda connection: service_windows.list_heard(connection, self._account, list(dict.fromkeys(peers))),
            patience=PATIENCE,
        )
        # One may have written while we read.
        self.heard({peer: found.get(peer, 0) for peer in peers})
        return [self._heard.get(peer) or found.get(peer, 0) for peer in peers]
