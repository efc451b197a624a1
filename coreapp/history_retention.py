"""Deletion of the expired history of callbacks, and of its oldest part where it has too many rows."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import logging

from prometheus_client import Counter, Gauge

from coreapp.context import ShardStore
from tidings.storage.business import callback_history

log = logging.getLogger(__name__)

HOUR_MS = 3600 * 1000
LIMIT = 5_000_000  # ended callbacks of one number; the oldest ones beyond it are deleted before they expire
PAGE = 1_000  # rows that one transaction deletes
COUNTED = 50_000  # rows that one transaction counts
PAUSE = 0.01  # seconds between two pages, to leave time to concurrent sends

ROWS = Gauge("tidings_callback_history_rows", "Ended callbacks that are kept, as counted hourly", ["number"])
SHORTENED = Counter(
    "tidings_callback_history_shortened_total", "Ended callbacks deleted early because there were too many", ["number"]
)


@dataclasses.dataclass(eq=False, repr=False)
class HistoryCollector:
    """Deletes the expired history of one number, one page per transaction. Runs at the owner of its first shard.

    It also counts the rows, those of each pass once. If there are more than `limit`, it deletes the oldest.
    """

    store: ShardStore
    hours: int  # retention of ended callbacks and their attempts; 0 deletes all
    _: dataclasses.KW_ONLY
    limit: int = LIMIT
    page: int = PAGE
    counted: int = COUNTED

    def __post_init__(self) -> None:
        # Last `seq` and number of rows of each counted page, oldest first.
        self._pages: collections.deque[tuple[int, int]] = collections.deque()

    async def __call__(self) -> int:
        """Delete expired rows. Returns their number. Raises `LeaseLost`."""
        until = (self.store.now() - self.hours * HOUR_MS) * 1000 << 5
        deleted = await self._delete(until)
        while self._pages and self._pages[0][0] <= until:
            self._pages.popleft()
        if self.hours:
            await self._count()
            shortened = await self._shorten()
            if shortened:
                until = max(until, shortened[0])
                deleted += shortened[1]
        ROWS.labels(self.store.account).set(sum(count for _, count in self._pages))
        return deleted + await self._sweep_attempts(until)

    async def _delete(self, until: int) -> int:
        """Delete the ended callbacks up to this `seq`."""
        total, account = 0, self.store.account
        while True:
            delete = functools.partial(callback_history.delete_page, account=account, until=until, limit=self.page)
            deleted = await self.store.persist(delete)
            total += deleted
            if deleted < self.page:
                return total
            await asyncio.sleep(PAUSE)

    async def _count(self) -> None:
        """Count the rows that were not counted yet."""
        account, after = self.store.account, self._pages[-1][0] if self._pages else 0
        while True:
            count = functools.partial(callback_history.count_page, account=account, after=after, limit=self.counted)
            found = await self.store.database.query(count)
            if found.count:
                self._pages.append((found.last, found.count))
            if found.count < self.counted:
                return
            after = found.last
            await asyncio.sleep(PAUSE)

    async def _shorten(self) -> tuple[int, int] | None:
        """Delete the oldest counted pages beyond the limit. Returns the `seq` up to which, and the number of rows; None
        if the history is not too long.
        """
        total, until, excess = sum(count for _, count in self._pages), 0, 0
        while self._pages and total > self.limit:
            until, count = self._pages.popleft()
            total, excess = total - count, excess + count
        if not excess:
            return None
        kept = (self.store.now() - (until >> 5) // 1000) / HOUR_MS
        log.warning("history.shortened", extra={"rows": excess, "hours_kept": round(kept, 1), "limit": self.limit})
        SHORTENED.labels(self.store.account).inc(excess)
        return until, await self._delete(until)

    async def _sweep_attempts(self, until: int) -> int:
        """Delete the attempts at callbacks up to this `seq` that are no longer in the queue."""
        total, after = 0, 0
        while True:
            sweep = functools.partial(
                callback_history.sweep_attempts,
                account=self.store.account,
                after=after,
                until=until,
                limit=self.page,
            )
            found = await self.store.persist(sweep)
            total += found.deleted
            if found.last is None:
                return total
            after = found.last
            await asyncio.sleep(PAUSE)
