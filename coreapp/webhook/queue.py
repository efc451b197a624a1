"""The callbacks that wait, in memory: in order for one subject, due ones by turns of the recipients they are about.

At most `limit` are in memory; what comes beyond that is only in the database, and is loaded when memory has drained to
half. Callbacks that are not persisted have no database to wait in: beyond twice the limit they are dropped and counted.
Dead letters that are brought back go beyond the limit: at most 1,000 at a time, none while the queue is full.

New statuses are held until their message's sender knows its id: they are in the queue, and count, like any other that
is not due yet.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import heapq
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

from prometheus_client import Counter

from coreapp.webhook.ready import ReadyCallbacks
from tidings.runtime.clock import Clock
from tidings.storage.business.callbacks import Callback

log = logging.getLogger(__name__)

DROPPED = Counter("tidings_callbacks_dropped_total", "Callbacks lost because callback_persist is off and memory full")

PAGE = 2000
RETRY_SECONDS = 1.0  # after a page could not be loaded
# Seconds between two looks at what is due: so long may a callback be late, and there are no more timers than that.
SPACING = 0.02
# Seconds, more than any status is held: one that seems to be held for longer is due, the clock was set back.
LONGEST_HOLD = 120.0

# Kinds of what recipients write or break at will; there are as many of the others as messages and calls to the API.
FROM_RECIPIENTS = frozenset({"inbound_message", "error"})


@dataclasses.dataclass(slots=True)
class Purge:
    """What `CallbackQueue.without` found, and is given.

    chosen:    what is to be deleted.
    discarded: the callbacks that were in memory; posted: subjects of which one is being posted, and stays.
    stored:    callbacks that were pending in the database alone and were deleted; theirs: of these `FROM_RECIPIENTS`.
    """

    chosen: frozenset[int]
    discarded: frozenset[int]
    posted: frozenset[str]
    stored: int = 0
    theirs: int = 0


LoadPage = Callable[[int, int], Awaitable[Sequence[Callback]]]


class CallbackQueue:
    """One shard's callbacks. `offer` puts in, `take` hands out, `done` or `retry` ends what `take` began."""

    def __init__(self, limit: int, clock: Clock, load: LoadPage, *, retry_seconds: float = RETRY_SECONDS) -> None:
        """load(after, limit): pending callbacks with a higher `seq` than `after`, in order; retry_seconds: after one
        that failed."""
        self._limit = limit
        self._clock = clock
        self._load = load
        self._retry_seconds = retry_seconds
        self._ready = ReadyCallbacks()
        self._parked: list[tuple[int, int, Callback]] = []
        # A subject is a key while one of its callbacks is ready, parked or being delivered; those after it wait here.
        self._behind: dict[str, list[Callback] | None] = {}
        self._takers: collections.deque[asyncio.Future[None]] = collections.deque()
        self._in_memory = 0
        self._in_database = 0
        # Of these, what recipients did.
        self._theirs_in_memory = 0
        self._theirs_in_database = 0
        # The rows that are not in memory are those above this `seq`, but for the ones brought back.
        self._highest = 0
        self._brought_back: set[int] = set()
        # By subject that is parked before its first attempt: callbacks of it in memory.
        self._held: dict[str, int] = {}
        self._held_count = 0
        # Callbacks that were delivered, given up or deleted.
        self.left = 0
        self._paging = asyncio.Lock()
        self._loading: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        return self._in_memory + self._in_database

    @property
    def from_recipients(self) -> int:
        """How many of them tell what recipients did."""
        return self._theirs_in_memory + self._theirs_in_database

    @property
    def ready(self) -> int:
        """Callbacks that are due and that nobody has taken."""
        return len(self._ready)

    @property
    def parked(self) -> int:
        """Callbacks in memory that wait for their time; those behind them in their subjects are not counted."""
        return len(self._parked)

    @property
    def held(self) -> int:
        """Callbacks in memory that wait until the sender of their message knows its id."""
        return self._held_count

    @property
    def failing(self) -> int:
        """Callbacks in memory that the webhook did not take and that wait to be tried again."""
        return sum(1 for _, _, callback in list(self._parked) if callback.attempt)

    async def start(self, pending: int, from_recipients: int = 0) -> None:
        """Begin with what the database holds: so many callbacks, and so many of them `FROM_RECIPIENTS`."""
        self._in_database, self._theirs_in_database = pending, from_recipients
        await self._load_page()
        self._load_if_low()

    def offer(self, callbacks: Sequence[Callback]) -> None:
        """New callbacks, on disk (or volatile) already, in order of `seq`.

        Those that a page brought between their commit and this call are in memory already, and were never counted as
        only in the database: they come after all that were.
        """
        for callback in callbacks:
            if callback.volatile:
                if self._in_memory >= 2 * self._limit:
                    DROPPED.inc()
                else:
                    self._admit(callback)
            elif callback.seq <= self._highest:
                continue
            elif self._in_database or self._in_memory >= self._limit:
                self._in_database += 1
                self._theirs_in_database += callback.kind in FROM_RECIPIENTS
            else:
                self._highest = max(self._highest, callback.seq)
                self._admit(callback)

    async def bring_back(self, revive: Callable[[], Awaitable[Sequence[Callback]]]) -> int:
        """Take in the dead letters, of any age, that `revive()` makes pending again; returns how many."""
        # No page is loaded meanwhile: it would bring the same rows.
        async with self._paging:
            callbacks = await revive()
            for callback in callbacks:
                if callback.seq > self._highest:
                    self._brought_back.add(callback.seq)
                self._admit(callback)
        return len(callbacks)

    def hurry(self, seqs: Collection[int]) -> Sequence[Callback]:
        """Make due now those of these callbacks in memory that failed and are to be tried again; which they are."""
        failing = [callback for _, _, callback in self._parked if callback.attempt and callback.seq in seqs]
        for callback in failing:
            callback.due_at = 0
        self._parked = [(callback.due_at, callback.seq, callback) for _, _, callback in self._parked]
        heapq.heapify(self._parked)
        self.release_due()
        return failing

    @contextlib.asynccontextmanager
    async def without(self, choose: Callable[[], Awaitable[Collection[int]]]) -> AsyncIterator[Purge]:
        """For the deletion of the callbacks that `choose()` names: none is handed out from then on, but for those that
        are being posted.

        Raises whatever `choose` and the block raise; after the block, what is in memory must not be used any more then.
        """
        # No page is loaded meanwhile, and no dead letter brought back: they would be in memory again.
        async with self._paging:
            chosen = frozenset(await choose())
            before = len(self)
            purge = self._discard(chosen)
            self.left += before - len(self)
            yield purge
            before = len(self)
            self._in_database = max(0, self._in_database - purge.stored)
            self._theirs_in_database = max(0, self._theirs_in_database - purge.theirs)
            self.left += before - len(self)

    def _discard(self, seqs: frozenset[int]) -> Purge:
        heads = [*self._ready.all(), *(callback for _, _, callback in sorted(self._parked))]
        waiting = [*heads, *(callback for behind in self._behind.values() for callback in behind or ())]
        posted = frozenset(self._behind.keys() - {callback.subject for callback in heads})
        # All that wait are put in again, but for these.
        self._in_memory -= len(waiting)
        self._theirs_in_memory -= sum(callback.kind in FROM_RECIPIENTS for callback in waiting)
        self._ready, self._parked = ReadyCallbacks(), []
        self._behind = dict.fromkeys(posted)
        self._held, self._held_count = {}, 0
        gone: set[int] = set()
        for callback in waiting:
            if callback.seq in seqs:
                gone.add(callback.seq)
            else:
                self._admit(callback)
        return Purge(seqs, frozenset(gone), posted)

    async def take(self) -> Callback:
        """The next callback that is due; waits for one."""
        while not self._ready:
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled():
                    self._wake()
                raise
        return self._ready.pop()

    def done(self, callback: Callback) -> None:
        """It was delivered or given up: the next of its subject may go."""
        self._in_memory -= 1
        self._theirs_in_memory -= callback.kind in FROM_RECIPIENTS
        waiting = self._behind.get(callback.subject)
        if waiting:
            self._place(waiting.pop(0))
        else:
            self._behind.pop(callback.subject, None)
        self.left += 1
        self._load_if_low()

    def retry(self, callback: Callback) -> None:
        """It was not taken: it comes again at its `due_at`, and those of its subject wait behind it."""
        if not self._closed:
            self._place(callback)

    async def close(self) -> None:
        """Stop loading and wake nobody any more."""
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)

    def age(self) -> float:
        """Seconds for which the oldest callback has been due, of those in memory that are not being posted now.

        May be called from another thread.
        """
        waiting = [*self._ready.first(), *(callback for _, _, callback in list(self._parked))]
        oldest = min((callback.created_at for callback in waiting), default=math.inf)
        return max(0.0, self._clock.now() - oldest / 1000)

    def _admit(self, callback: Callback) -> None:
        subject = callback.subject
        self._in_memory += 1
        self._theirs_in_memory += callback.kind in FROM_RECIPIENTS
        if subject in self._behind:
            waiting = self._behind[subject]
            if waiting is None:
                self._behind[subject] = [callback]
            else:
                waiting.append(callback)
            if subject in self._held:
                self._held[subject] += 1
                self._held_count += 1
        else:
            self._behind[subject] = None
            if not self._place(callback) and not callback.attempt:
                self._held[subject] = 1
                self._held_count += 1

    def _place(self, callback: Callback) -> bool:
        """Make it ready if it is due; is it?"""
        if not _is_due(callback, self._clock.now()):
            heapq.heappush(self._parked, (callback.due_at, callback.seq, callback))
            if self._parked[0][2] is callback:
                self._set_alarm()
            return False
        self._ready.add(callback)
        self._wake()
        return True

    def _wake(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    def _set_alarm(self) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + max(SPACING, self._parked[0][0] / 1000 - self._clock.now())
        if self._alarm is not None:
            if self._alarm.when() <= at:
                return
            self._alarm.cancel()
        self._alarm = loop.call_at(at, self.release_due)

    def release_due(self) -> None:
        """Make ready what is due by now."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        now = self._clock.now()
        while self._parked and _is_due(self._parked[0][2], now):
            callback = heapq.heappop(self._parked)[2]
            self._ready.add(callback)
            self._held_count -= self._held.pop(callback.subject, 0)
            self._wake()
        if self._parked:
            self._set_alarm()

    def _load_if_low(self) -> None:
        if self._in_database and self._in_memory <= self._limit // 2 and self._loading is None and not self._closed:
            self._loading = asyncio.get_running_loop().create_task(self._load_more())

    async def _load_more(self) -> None:
        try:
            while self._in_database and self._in_memory < self._limit:
                try:
                    await self._load_page()
                except Exception:
                    log.exception("callbacks.load_failed")
                    await asyncio.sleep(self._retry_seconds)
        finally:
            self._loading = None

    async def _load_page(self) -> None:
        async with self._paging:
            before, room = self._in_database, min(PAGE, self._limit - self._in_memory)
            if room <= 0:
                return
            page = await self._load(self._highest, room)
            for callback in page:
                self._highest = callback.seq
                if callback.seq in self._brought_back:
                    # It was taken in already, and is not one of those counted.
                    self._brought_back.discard(callback.seq)
                else:
                    self._admit(callback)
                    self._in_database = max(0, self._in_database - 1)
                    if callback.kind in FROM_RECIPIENTS:
                        self._theirs_in_database = max(0, self._theirs_in_database - 1)
            if not page:
                self._brought_back.clear()
                if self._in_database == before:
                    # Nothing there and nothing came while we looked: the count was too high.
                    self.left += self._in_database
                    self._in_database = self._theirs_in_database = 0


def _is_due(callback: Callback, now: float) -> bool:
    """May it be posted? now: Unix seconds."""
    wait = callback.due_at / 1000 - now
    return wait <= 0 or (wait > LONGEST_HOLD and not callback.attempt)
