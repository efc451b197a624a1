"""Maintenance of the history of callbacks: expired and excess rows are deleted, small segments merged."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import logging
from collections.abc import Sequence

from prometheus_client import Counter, Gauge

from coreapp.context import ShardStore
from tidings.storage.business import callback_history
from tidings.storage.database import pages

log = logging.getLogger(__name__)

HOUR_MS = 3600 * 1000
LIMIT = 5_000_000  # ended callbacks of one number; the oldest ones beyond it are deleted before they expire
PAGE = 200  # segments that one transaction deletes, callbacks whose attempts it checks
MERGE_PAGE = 50  # segments that are read at a time to be merged
COUNTED = 1_000  # segments that one query counts
PASSES = 6  # passes after which all segments are counted again, also those that ended late and sort among earlier ones
MERGED_AFTER_MS = 180_000  # age from which segments are merged
PAUSE = 0.01  # seconds between two pages, to leave time to concurrent sends

KEPT = Gauge("tidings_callback_history", "Ended callbacks that are kept, as counted hourly", ["number"])
SHORTENED = Counter(
    "tidings_callback_history_shortened_total", "Ended callbacks deleted early because there were too many", ["number"]
)


@dataclasses.dataclass(eq=False, repr=False)
class HistoryCollector:
    """Deletes the expired history of one number, one page per transaction. Runs at the owner of its first shard.

    It also merges small segments and counts the callbacks, those since the last pass and in some passes all. If there
    are more than `limit`, it deletes the oldest.
    """

    store: ShardStore
    hours: int  # retention of ended callbacks and their attempts; 0 deletes all
    _: dataclasses.KW_ONLY
    limit: int = LIMIT
    page: int = PAGE
    counted: int = COUNTED

    def __post_init__(self) -> None:
        # Last `seq` and number of callbacks of each counted segment, oldest first.
        self._sizes: collections.deque[tuple[int, int]] = collections.deque()
        self._passes = 0
        self._ahead = 0  # highest `seq` if it is of a clock that was ahead; otherwise 0

    async def __call__(self) -> int:
        """Delete expired rows. Returns the number of callbacks and attempts. Raises `LeaseLost`."""
        ended_until = self.store.now() - self.hours * HOUR_MS
        newest = await self.store.database.query(
            functools.partial(callback_history.highest_seq, account=self.store.account)
        )
        # All `seq`s after those of a clock that was ahead follow them: only the end of each callback counts then.
        self._ahead = newest if newest > (self.store.now() * 1000 << 5) + callback_history.SPAN else 0
        until = max(ended_until * 1000 << 5, self._ahead)
        deleted = await self._delete(until, ended_until)
        while self._sizes and self._sizes[0][0] <= until:
            self._sizes.popleft()
        if self.hours:
            if self._passes % PASSES == 0:
                self._sizes.clear()
            self._passes += 1
            await self._merge_and_count()
            deleted += await self._shorten()
        KEPT.labels(self.store.account).set(sum(count for _, count in self._sizes))
        return deleted + await self._sweep_attempts(until, ended_until)

    async def _delete(self, until: int, ended_until: int) -> int:
        """Delete segments up to the `seq` `until` that ended until `ended_until` (Unix milliseconds)."""
        total, account = 0, self.store.account
        while True:
            found = await self.store.persist(
                functools.partial(
                    callback_history.delete_page,
                    account=account,
                    until=until,
                    ended_until=ended_until,
                    limit=self.page,
                )
            )
            total += found.callbacks
            if found.is_last:
                return total
            await asyncio.sleep(PAUSE)

    async def _merge_and_count(self) -> None:
        """Count the callbacks of segments that were not counted yet, and merge small ones."""
        ended_until = self.store.now() - MERGED_AFTER_MS
        while True:
            count = functools.partial(
                callback_history.count_page,
                account=self.store.account,
                after=self._sizes[-1][0] if self._sizes else 0,
                limit=self.counted,
            )
            found = (await self.store.database.query(count)).sizes
            settled = [size for size in found if size[0] < max(ended_until * 1000 << 5, self._ahead + 1)]
            sizes = dict(settled)
            for some in pages([seq for seq, size in settled if size < callback_history.SMALL], MERGE_PAGE):
                await self._merge(some, ended_until, sizes)
            self._sizes.extend(sorted(sizes.items()))
            if len(settled) < self.counted:
                return
            await asyncio.sleep(PAUSE)

    async def _merge(self, seqs: Sequence[int], ended_until: int, sizes: dict[int, int]) -> None:
        """Merge small segments. They are read before the transaction that holds the lease.

        ended_until: as of `callback_history.read_mergeable`
        sizes: numbers of callbacks by `last_seq`, which are updated
        """
        read = functools.partial(
            callback_history.read_mergeable, account=self.store.account, seqs=seqs, ended_until=ended_until
        )
        for merge in await self.store.database.query(read):
            if await self.store.persist(functools.partial(callback_history.replace, merge=merge)):
                for seq in merge.replaced:
                    del sizes[seq]
                sizes[merge.segment.last_seq] = merge.segment.size
            await asyncio.sleep(PAUSE)

    async def _shorten(self) -> int:
        """Delete the oldest counted segments beyond the limit. Returns the number of callbacks."""
        total, until = sum(count for _, count in self._sizes), 0
        while self._sizes and total > self.limit:
            until, count = self._sizes.popleft()
            total -= count
        if not until:
            return 0
        deleted = await self._delete(until, self.store.now())
        kept = (self.store.now() - (until >> 5) // 1000) / HOUR_MS
        log.warning("history.shortened", extra={"deleted": deleted, "hours_kept": round(kept, 1), "limit": self.limit})
        SHORTENED.labels(self.store.account).inc(deleted)
        return deleted

    async def _sweep_attempts(self, until: int, tried_until: int) -> int:
        """Delete attempts made until `tried_until` (Unix milliseconds) at callbacks up to `until` that have left the
        queue.
        """
        total, after = 0, 0
        while True:
            found = await self.store.persist(
                functools.partial(
                    callback_history.sweep_attempts,
                    account=self.store.account,
                    after=after,
                    until=until,
                    tried_until=tried_until,
                    limit=self.page,
                )
            )
            total += found.deleted
            if found.last is None:
                return total
            after = found.last
            await asyncio.sleep(PAUSE)
