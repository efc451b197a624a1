"""Waiting callbacks in memory: in order for one subject, with due ones round robin over the recipients they concern.

The states of a callback:

- **ready**: due, and not taken by a worker
- **scheduled**: not due yet, because it waits for a retry or is held
- **held**: scheduled before its first attempt: a new status waits until the client has received the id of its message.
  The later callbacks of its subject count as held too.
- **blocked**: behind another callback of its subject that is ready, scheduled or being delivered
- **in the database only**: not in memory

At most `limit` are in memory. Further ones are only in the database, and are loaded when memory has drained to half of
the limit. Callbacks that are not persisted have no row to wait in: beyond twice the limit they are dropped and counted.
A replay is refused while the queue is at its limit; otherwise it adds up to 1,000 callbacks, possibly beyond the limit.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import heapq
import itertools
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Generic, TypeVar

from prometheus_client import Counter

from coreapp.errors import RequestRefused
from coreapp.webhook.target import CurrentTargets
from tidings.aio.clock import Clock
from tidings.storage.business.callbacks import CLOUD_ERROR, CLOUD_MESSAGE, Callback
from tidings.wire import codes

log = logging.getLogger(__name__)

DROPPED = Counter("tidings_callbacks_dropped_total", "Callbacks lost because callback_persist is off and memory full")
STATUSES_DROPPED = Counter(
    "tidings_statuses_dropped_total", "Statuses dropped because no webhook URL is set and the queue was full"
)

PAGE = 2000  # rows per read
RETRY_SECONDS = 1.0  # seconds until the next read after a failed one
# Minimum seconds between two timers for due callbacks. A callback may be late by this time.
SPACING = 0.02
# Seconds, longer than any hold of a status. A callback that seems held for longer is due, because the clock was set
# back.
LONGEST_HOLD = 120.0
# Seconds, longer than any wait for a retry: the largest backoff that the settings allow, with a margin.
LONGEST_RETRY = 86_400.0 + LONGEST_HOLD

# Seconds by which a due time on the monotonic clock may differ from that on the wall clock because of rounding.
ROUNDING = 1e-6

# Largest fraction of the queue's limit that callbacks caused by recipients take up when a message is to be accepted.
RECIPIENTS_SHARE = 0.25
# Kinds of callbacks that recipients can cause without bound. The others are bounded by the messages and calls to the
# API.
FROM_RECIPIENTS = frozenset({"inbound_message", "error", CLOUD_MESSAGE, CLOUD_ERROR})


@dataclasses.dataclass(slots=True)
class QueuePurge:
    """State of a deletion: set by `CallbackQueue.without`, completed by its caller."""

    chosen: frozenset[int]  # `seq` of the callbacks to delete
    discarded: frozenset[int]  # `seq` of those that were in memory and are removed
    posted: frozenset[str]  # subjects of which one callback is being posted and stays
    stored: int = 0  # set by the caller: number of deleted callbacks that were pending in the database only
    theirs: int = 0  # set by the caller: number of those of `stored` that are `FROM_RECIPIENTS`
    is_counted: bool = False  # set by the caller with `stored` and `theirs`


LoadPage = Callable[[int, int], Awaitable[Sequence[Callback]]]


class ReadyCallbacks:
    """Due callbacks, one of each recipient after the other, so that no recipient waits for all callbacks of another.
    Callbacks without a known recipient form one queue together.
    """

    def __init__(self) -> None:
        self._queues: dict[str, collections.deque[Callback]] = {}
        # Each key of `_queues` once.
        self._order: collections.deque[str] = collections.deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, callback: Callback) -> None:
        self._count += 1
        queue = self._queues.get(callback.recipient)
        if queue is None:
            self._queues[callback.recipient] = collections.deque((callback,))
            self._order.append(callback.recipient)
        else:
            queue.append(callback)

    def pop(self) -> Callback:
        self._count -= 1
        recipient = self._order.popleft()
        queue = self._queues[recipient]
        callback = queue.popleft()
        if queue:
            self._order.append(recipient)
        else:
            del self._queues[recipient]
        return callback

    def pop_some(self, limit: int, admits: Callable[[Callback], bool]) -> list[Callback]:
        """Remove and return up to `limit` callbacks that `admits` accepts, in the order of `pop`. The others keep their
        place. At most `limit` of them are examined, because each may be examined again for every post.
        """
        taken: list[Callback] = []
        passed: list[str] = []
        while self._order and len(taken) < limit and len(passed) < limit:
            recipient = self._order.popleft()
            queue = self._queues[recipient]
            if not admits(queue[0]):
                passed.append(recipient)
                continue
            taken.append(queue.popleft())
            if queue:
                self._order.append(recipient)
            else:
                del self._queues[recipient]
        self._order.extendleft(reversed(passed))
        self._count -= len(taken)
        return taken

    def all(self) -> Sequence[Callback]:
        """Return all callbacks, those of each recipient in order."""
        return [callback for queue in self._queues.values() for callback in queue]

    def first(self) -> Sequence[Callback]:
        """Return the longest-waiting callback of each recipient."""
        return [callback for queue in list(self._queues.values()) for callback in itertools.islice(queue, 1)]


Lane = TypeVar("Lane")


@dataclasses.dataclass(frozen=True, slots=True)
class Lanes(Generic[Lane]):
    """State for each of the two formats: their webhooks do not wait for each other."""

    v1: Lane
    cloud: Lane

    def of(self, cloud: bool) -> Lane:
        return self.cloud if cloud else self.v1


@dataclasses.dataclass(eq=False, repr=False)
class CallbackQueue:
    """Callbacks of one shard. `offer` adds callbacks, `take` hands them out, and `done` or `retry` ends each `take`."""

    limit: int
    clock: Clock
    load: LoadPage  # called as load(after, limit); returns pending callbacks with a `seq` above `after`, in order
    _: dataclasses.KW_ONLY
    retry_seconds: float = RETRY_SECONDS  # seconds until the next read after a failed one

    def __post_init__(self) -> None:
        self._ready = Lanes(ReadyCallbacks(), ReadyCallbacks())
        # With the monotonic time from which each is due: a clock that is set back delays none of them.
        self._scheduled: list[tuple[float, int, Callback]] = []
        # Blocked callbacks, by subject. A subject is a key while one of its callbacks is ready, scheduled or being
        # delivered.
        self._blocked: dict[str, list[Callback] | None] = {}
        self._takers: Lanes[list[asyncio.Future[None]]] = Lanes([], [])
        self._in_memory = 0
        self._in_database = 0
        # Of these, callbacks caused by recipients (see FROM_RECIPIENTS).
        self._theirs_in_memory = 0
        self._theirs_in_database = 0
        # Rows above this `seq` are not in memory, except those brought back.
        self._highest = 0
        self._revived: set[int] = set()
        # Those in memory whose rows are not on disk yet.
        self._unwritten: set[int] = set()
        # By subject whose first callback is held: number of its callbacks in memory.
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
        """Waiting callbacks caused by recipients."""
        return self._theirs_in_memory + self._theirs_in_database

    @property
    def ready(self) -> int:
        """Callbacks that are due and not taken."""
        return len(self._ready.v1) + len(self._ready.cloud)

    @property
    def scheduled(self) -> int:
        """Scheduled callbacks, without those that they block."""
        return len(self._scheduled)

    @property
    def held(self) -> int:
        """Held callbacks."""
        return self._held_count

    @property
    def failing(self) -> int:
        """Callbacks in memory that the webhook did not accept and that will be retried."""
        return sum(1 for _, _, callback in list(self._scheduled) if callback.attempt)

    async def start(self, pending: int, from_recipients: int = 0) -> None:
        """Start with the callbacks in the database.

        pending: number of callbacks
        from_recipients: number of those that are `FROM_RECIPIENTS`
        """
        self._in_database, self._theirs_in_database = pending, from_recipients
        await self._load_page()
        self._load_if_low()

    def offer(self, callbacks: Sequence[Callback]) -> None:
        """Add new callbacks, which are on disk or volatile, in order of `seq`.

        A page may have loaded some of them between their commit and this call. They are in memory, and were never
        counted as database-only, because they come after all that were.
        """
        for callback in callbacks:
            if callback.seq in self._unwritten:
                self._written(callback)
            elif callback.volatile:
                if self._in_memory >= 2 * self.limit:
                    DROPPED.inc()
                else:
                    self._admit(callback)
            elif callback.seq <= self._highest:
                continue
            elif self._in_database or self._in_memory >= self.limit:
                self._in_database += 1
                self._theirs_in_database += callback.kind in FROM_RECIPIENTS
            else:
                self._highest = max(self._highest, callback.seq)
                self._admit(callback)

    def keeps_up(self, waiting: int, *, new: int) -> bool:
        """Return whether all callbacks are in memory, with room for `new` ones, and at most `waiting` are due and not
        taken.
        """
        return not self._in_database and self.ready <= waiting and self._in_memory + new <= self.limit

    def offer_unwritten(self, callbacks: Sequence[Callback]) -> None:
        """Add new callbacks that have no rows. Each is accepted (`accepted_unwritten`), or offered when it is on
        disk.
        """
        for callback in callbacks:
            self._unwritten.add(callback.seq)
            self._admit(callback)

    def accepted_unwritten(self, callback: Callback) -> None:
        """Record that a callback without a row was accepted. `done` follows."""
        self._unwritten.discard(callback.seq)

    def _written(self, callback: Callback) -> None:
        self._unwritten.discard(callback.seq)
        if self._in_database:
            if callback.seq > self._highest:
                self._revived.add(callback.seq)
        else:
            self._highest = max(self._highest, callback.seq)

    async def add_revived(self, revive: Callable[[], Awaitable[Sequence[Callback]]]) -> int:
        """Add the dead letters of any age that `revive()` makes pending again. Returns their number."""
        # Pages are not loaded during this: they would contain the same rows.
        async with self._paging:
            callbacks = await revive()
            for callback in callbacks:
                if callback.seq > self._highest:
                    self._revived.add(callback.seq)
                self._admit(callback)
        return len(callbacks)

    def make_due(self, seqs: Collection[int]) -> Sequence[Callback]:
        """Make those of these callbacks in memory due that failed and wait for a retry. Returns them."""
        failing = [callback for _, _, callback in self._scheduled if callback.attempt and callback.seq in seqs]
        due = {callback.seq for callback in failing}
        for callback in failing:
            callback.due_at = 0
        self._scheduled = [(-math.inf if entry[1] in due else entry[0], *entry[1:]) for entry in self._scheduled]
        heapq.heapify(self._scheduled)
        self.release_due()
        return failing

    @contextlib.asynccontextmanager
    async def without(self, choose: Callable[[], Awaitable[Collection[int]]]) -> AsyncIterator[QueuePurge]:
        """Remove the callbacks that `choose()` returns for the duration of their deletion: none of them is handed out.
        Callbacks being posted stay.

        Raises the errors of `choose` and of the block. After an error of the block the callbacks in memory must not be
        used.
        """
        # Pages and dead letters are not loaded during this: they would be in memory again.
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

    def _discard(self, seqs: frozenset[int]) -> QueuePurge:
        heads = [
            *self._ready.v1.all(),
            *self._ready.cloud.all(),
            *(callback for _, _, callback in sorted(self._scheduled)),
        ]
        waiting = [*heads, *(callback for blocked in self._blocked.values() for callback in blocked or ())]
        posted = frozenset(self._blocked.keys() - {callback.subject for callback in heads})
        due = {seq: due_at for due_at, seq, _ in self._scheduled}
        # All waiting callbacks are added again, except these.
        self._in_memory -= len(waiting)
        self._theirs_in_memory -= sum(callback.kind in FROM_RECIPIENTS for callback in waiting)
        self._ready, self._scheduled = Lanes(ReadyCallbacks(), ReadyCallbacks()), []
        self._blocked = dict.fromkeys(posted)
        self._held, self._held_count = {}, 0
        gone: set[int] = set()
        for callback in waiting:
            if callback.seq in seqs:
                gone.add(callback.seq)
            else:
                self._admit(callback, due.get(callback.seq))
        return QueuePurge(seqs, frozenset(gone), posted)

    async def take(self, *, cloud: bool = False) -> Callback:
        """Return the next due callback in the format of v1, or in that of the Cloud API; waits for one."""
        while not (ready := self._ready.of(cloud)):
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.of(cloud).append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                takers = self._takers.of(cloud)
                if taker in takers:
                    takers.remove(taker)
                elif not taker.cancelled():
                    self._wake(cloud)
                raise
        return ready.pop()

    def take_ready(self, limit: int, admits: Callable[[Callback], bool], *, cloud: bool) -> list[Callback]:
        """Return up to `limit` further callbacks that are due and that `admits` accepts. Each is of another subject."""
        return self._ready.of(cloud).pop_some(limit, admits)

    def done(self, callback: Callback) -> None:
        """End a callback that was delivered or given up, and release the next of its subject."""
        self._in_memory -= 1
        self._theirs_in_memory -= callback.kind in FROM_RECIPIENTS
        waiting = self._blocked.get(callback.subject)
        if waiting:
            self._place(waiting.pop(0))
        else:
            self._blocked.pop(callback.subject, None)
        self.left += 1
        self._load_if_low()

    def retry(self, callback: Callback) -> None:
        """Return a callback that was not accepted. It is retried at its `due_at`, and blocks later ones of its
        subject until then.
        """
        if not self._closed:
            self._place(callback)

    async def close(self) -> None:
        """Stop loading and waking workers."""
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)

    def age(self) -> float:
        """Return the age in seconds of the oldest callback in memory that is not being posted. May be called from
        another thread.
        """
        waiting = [
            *self._ready.v1.first(),
            *self._ready.cloud.first(),
            *(callback for _, _, callback in list(self._scheduled)),
        ]
        oldest = min((callback.created_at for callback in waiting), default=math.inf)
        return max(0.0, self.clock.now() - oldest / 1000)

    def _admit(self, callback: Callback, due: float | None = None) -> None:
        """Add a callback.

        due: as in `_place`
        """
        subject = callback.subject
        if math.isinf(callback.since):
            callback.since = self.clock.monotonic_of(callback.created_at)
        self._in_memory += 1
        self._theirs_in_memory += callback.kind in FROM_RECIPIENTS
        if subject in self._blocked:
            waiting = self._blocked[subject]
            if waiting is None:
                self._blocked[subject] = [callback]
            else:
                waiting.append(callback)
            if subject in self._held:
                self._held[subject] += 1
                self._held_count += 1
        else:
            self._blocked[subject] = None
            if not self._place(callback, due) and not callback.attempt:
                self._held[subject] = 1
                self._held_count += 1

    def _place(self, callback: Callback, due: float | None = None) -> bool:
        """Make a callback ready if it is due. Returns whether it is.

        due: monotonic time from which it is due; None to take that from its `due_at`
        """
        wait = _seconds(callback, self.clock.now()) if due is None else due - self.clock.monotonic()
        if wait > 0:
            heapq.heappush(self._scheduled, (self.clock.monotonic() + wait, callback.seq, callback))
            if self._scheduled[0][2] is callback:
                self._set_alarm()
            return False
        self._make_ready(callback)
        return True

    def _make_ready(self, callback: Callback) -> None:
        cloud = callback.is_cloud
        self._ready.of(cloud).add(callback)
        self._wake(cloud)

    def _wake(self, cloud: bool) -> None:
        takers = self._takers.of(cloud)
        while takers:
            # The one that has waited for the shortest time, so that few workers are in use and in the CPU's caches.
            taker = takers.pop()
            if not taker.done():
                taker.set_result(None)
                return

    def _set_alarm(self) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + max(SPACING, self._scheduled[0][0] - self.clock.monotonic())
        if self._alarm is not None:
            if self._alarm.when() <= at:
                return
            self._alarm.cancel()
        self._alarm = loop.call_at(at, self.release_due)

    def release_due(self) -> None:
        """Make the due callbacks ready."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        now = self.clock.monotonic() + ROUNDING
        while self._scheduled and self._scheduled[0][0] <= now:
            callback = heapq.heappop(self._scheduled)[2]
            self._held_count -= self._held.pop(callback.subject, 0)
            self._make_ready(callback)
        if self._scheduled:
            self._set_alarm()

    def _load_if_low(self) -> None:
        if self._in_database and self._in_memory <= self.limit // 2 and self._loading is None and not self._closed:
            self._loading = asyncio.get_running_loop().create_task(self._load_more())

    async def _load_more(self) -> None:
        try:
            while self._in_database and self._in_memory < self.limit:
                try:
                    await self._load_page()
                except Exception:
                    log.exception("callbacks.load_failed")
                    await asyncio.sleep(self.retry_seconds)
        finally:
            self._loading = None

    async def _load_page(self) -> None:
        async with self._paging:
            before, room = self._in_database, min(PAGE, self.limit - self._in_memory)
            if room <= 0:
                return
            page = await self.load(self._highest, room)
            for callback in page:
                self._highest = callback.seq
                if callback.seq in self._unwritten:
                    # Its commit has just ended, and it was not counted.
                    continue
                if callback.seq in self._revived:
                    # It is in memory already, and was not counted.
                    self._revived.discard(callback.seq)
                else:
                    self._admit(callback)
                    self._in_database = max(0, self._in_database - 1)
                    if callback.kind in FROM_RECIPIENTS:
                        self._theirs_in_database = max(0, self._theirs_in_database - 1)
            if not page:
                self._revived.clear()
                if self._in_database == before:
                    # No rows and no new callbacks during the read: the count was too high.
                    self.left += self._in_database
                    self._in_database = self._theirs_in_database = 0


def _seconds(callback: Callback, now: float) -> float:
    """Return the seconds until the callback may be posted, not above 0 if it may be posted now.

    now: Unix seconds
    """
    wait = callback.due_at / 1000 - now
    longest = LONGEST_RETRY if callback.attempt else LONGEST_HOLD
    # A longer wait means that the clock was set back.
    return wait if wait <= longest else 0.0


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class CallbackAdmission:
    """Admission of the business's requests that add callbacks.

    While a webhook URL is set, messages and contacts calls that do not wait are refused at the queue's limit. Callbacks
    caused by recipients count for at most a quarter of it, so that recipients alone never make the API refuse. While no
    URL is set, both are accepted, and statuses and results that exceed the limit are dropped. With `refuses` none are
    dropped, and both are refused at the limit.
    """

    target: CurrentTargets
    queue: CallbackQueue
    _: dataclasses.KW_ONLY
    limit: int
    refuses: bool
    dropped: int = dataclasses.field(default=0, init=False)  # statuses dropped since a URL was last set

    def count(self) -> int:
        """Return the number of callbacks that count when one more message is to be accepted."""
        if not self.refuses and not self.target.is_set():
            return 0
        theirs = self.queue.from_recipients
        return len(self.queue) - theirs + min(theirs, int(self.limit * RECIPIENTS_SHARE))

    def require_room(self) -> None:
        """Raise `RequestRefused` with code 1016 when the queue has no room for the callback of a request."""
        if self.count() >= self.limit:
            raise at_limit()

    def is_full(self) -> bool:
        """Return whether statuses and results of contacts calls must be dropped."""
        return not self.refuses and not self.target.is_set() and len(self.queue) >= self.limit

    def drop(self) -> None:
        """Count one dropped status."""
        STATUSES_DROPPED.inc()
        self.dropped += 1

    def settings_changed(self) -> None:
        """Reset the count if a URL is set now. Statuses are counted again when there is none."""
        if self.target.is_set():
            self.dropped = 0


def at_limit() -> RequestRefused:
    """Return the error of a request that would add callbacks to a full queue."""
    return RequestRefused(codes.OVERLOADED, "the callback queue is at its limit", retry_after=5)
