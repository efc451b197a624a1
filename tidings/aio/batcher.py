"""Batcher: items that arrive while a flush is in flight go into the next flush.

Without `spacing` and `pause_share` it never waits on a timer. An item that arrives while a flush may start is flushed
at the end of the current event-loop iteration: a single item is not delayed, and items that arrive together, or during
a flush, share the next one. With one flush at a time, the next flush starts before the callers of the last one resume.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Generic, TypeVar

from prometheus_client import Counter, Histogram

from tidings.aio.queues import QUEUES

Item = TypeVar("Item")
Result = TypeVar("Result")

log = logging.getLogger(__name__)

FLUSHES = Counter("tidings_batches_total", "Batches flushed", ["batcher", "outcome"])
SIZES = Histogram(
    "tidings_batch_items", "Items in one batch", ["batcher"], buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
)

# Longest pause, seconds: a flush that hung must not delay the next one.
LONGEST_PAUSE = 0.1


class BatcherFull(Exception):
    """The batcher's queue is at its limit: shed the load or try again later."""


class BatcherClosed(Exception):
    """The batcher was closed before this item was flushed."""


@dataclasses.dataclass(eq=False, repr=False)
class Batcher(Generic[Item, Result]):
    """Passes items to `flush` in batches, in the order of arrival.

    `flush(items)` returns one result per item, in order. A result that is an exception is raised to the caller of its
    item. When `flush` raises, and the batch has more than one item and `isolate(error)` is true, the items are flushed
    one by one, so that only a poisoned item fails. Any other error is passed to every caller of the batch.
    """

    name: str
    flush: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]]
    _: dataclasses.KW_ONLY
    max_size: int = 200  # items per batch
    max_in_flight: int = 1  # concurrent flushes; with 1 the batches are strictly in order
    max_pending: int = 100_000  # items that wait for a flush; one more raises `BatcherFull`
    # Minimum seconds between the starts of two flushes that are not full, so that a steady stream makes fewer and
    # larger batches. An item that arrives after a pause is not delayed.
    spacing: float = 0.0
    # Minimum time from the end of a flush to the start of the next one that is not full, as a share of the first one's
    # duration, up to `LONGEST_PAUSE`: callers that receive a result and then put their next item can join, rather than
    # wait for two flushes.
    pause_share: float = 0.0
    isolate: Callable[[Exception], bool] | None = None  # called with the error of a flush; None never isolates items

    def __post_init__(self) -> None:
        self._earliest = 0.0
        self._pending: collections.deque[tuple[Item, asyncio.Future[Result]]] = collections.deque()
        # Flushes in flight: their start (`time.monotonic()`) and number of items.
        self._running: dict[asyncio.Task[None], tuple[float, int]] = {}
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._sizes = SIZES.labels(self.name)
        self._flushed = FLUSHES.labels(self.name, "ok")
        self._failed = FLUSHES.labels(self.name, "failed")
        self._through = QUEUES.join(self.name, self)

    @property
    def pending(self) -> int:
        """Items that wait for a flush, without those in flight."""
        return len(self._pending)

    @property
    def depth(self) -> int:
        """Items without a result: waiting and in flight."""
        return len(self._pending) + sum(count for _, count in self._running.values())

    @property
    def since(self) -> float | None:
        """Start of the oldest flush in flight (`time.monotonic()`); `None` when there is none.

        Waiting items arrived at that time or later.
        """
        return min((started for started, _ in self._running.values()), default=None)

    def put_all(self, items: Collection[Item]) -> list[asyncio.Future[Result]]:
        """Queue all of these items, or none of them. Returns their futures in order; raises as `put` does."""
        if len(self._pending) + len(items) > self.max_pending:
            raise BatcherFull(self.name)
        return [self.put(item) for item in items]

    def put(self, item: Item, *, urgent: bool = False) -> asyncio.Future[Result]:
        """Queue one item; the future receives its result or its error.

        Raises `BatcherFull` and `BatcherClosed`.

        urgent: flush without waiting for the spacing.
        """
        if self._closed:
            raise BatcherClosed(self.name)
        if len(self._pending) >= self.max_pending:
            raise BatcherFull(self.name)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._pending.append((item, future))
        if urgent:
            self._earliest = 0.0
        if not self._scheduled and len(self._running) < self.max_in_flight:
            self._schedule(loop)
        elif self._timer is not None and (urgent or len(self._pending) >= self.max_size):
            # A full batch does not wait for the spacing either.
            self._timer.cancel()
            self._schedule(loop)
        return future

    def waiting(self) -> Iterator[Item]:
        """Iterate over the items that no flush has taken yet, in order."""
        return (item for item, _ in self._pending)

    def drop(self, is_unwanted: Callable[[Item], bool]) -> list[Item]:
        """Drop items that no flush has taken yet, and return them. Their futures are cancelled."""
        kept: collections.deque[tuple[Item, asyncio.Future[Result]]] = collections.deque()
        dropped: list[Item] = []
        for entry in self._pending:
            if is_unwanted(entry[0]):
                dropped.append(entry[0])
                entry[1].cancel()
            else:
                kept.append(entry)
        self._pending = kept
        self._through.left += len(dropped)
        return dropped

    def skip_spacing(self) -> None:
        """Start the next flush without waiting for the spacing. Called during a flush."""
        self._earliest = 0.0

    async def submit(self, item: Item) -> Result:
        """Queue one item and wait for its result."""
        return await self.put(item)

    async def close(self) -> None:
        """Accept no more items, flush the waiting ones and wait for the flushes in flight."""
        self._closed = True
        while self._pending or self._running:
            self._start()
            if self._running:
                await asyncio.wait(self._running)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = True
        self._timer = None
        if self._is_due():
            loop.call_soon(self._start)
        else:
            self._timer = loop.call_at(self._earliest, self._start)

    def _is_due(self) -> bool:
        """Return whether a flush is to start now: items wait, and the spacing has passed or they fill a batch."""
        waits = asyncio.get_running_loop().time() < self._earliest
        return len(self._pending) >= (self.max_size if waits else 1)

    def _start(self) -> None:
        self._scheduled = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending and len(self._running) < self.max_in_flight:
            batch = self._next()
            task = asyncio.get_running_loop().create_task(self._work(batch), name=f"batch {self.name}")
            self._running[task] = time.monotonic(), len(batch)
            task.add_done_callback(self._finished)

    def _next(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        if self.spacing:
            self._earliest = asyncio.get_running_loop().time() + self.spacing
        return [self._pending.popleft() for _ in range(min(self.max_size, len(self._pending)))]

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._through.left += self._running.pop(task)[1]
        if not self._pending or self._scheduled:
            return
        if self._is_due():
            self._start()
        else:
            self._schedule(asyncio.get_running_loop())

    async def _work(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        """Flush a batch.

        With one flush at a time, batches that are due follow directly: callers process the results of one flush during
        the next flush rather than between the two.
        """
        task = asyncio.current_task()
        assert task is not None
        await self._timed(batch)
        while self.max_in_flight == 1 and self._is_due():
            self._through.left += len(batch)
            batch = self._next()
            self._running[task] = time.monotonic(), len(batch)
            await self._timed(batch)

    async def _timed(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        """Flush a batch, then set the earliest start of the next one."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._run(batch)
        if self.pause_share:
            ended = loop.time()
            self._earliest = max(self._earliest, ended + min(LONGEST_PAUSE, self.pause_share * (ended - began)))

    async def _run(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        self._sizes.observe(len(batch))
        try:
            results = await self.flush([item for item, _ in batch])
            if len(results) != len(batch):
                raise RuntimeError(f"batcher {self.name}: {len(batch)} items gave {len(results)} results")
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:
            self._failed.inc()
            if len(batch) > 1 and self.isolate is not None and self.isolate(error):
                log.warning("batch.isolating", extra={"batcher": self.name, "items": len(batch), "error": repr(error)})
                try:
                    for entry in batch:
                        await self._run([entry])
                except asyncio.CancelledError:
                    for _, future in batch:
                        future.cancel()
                    raise
                return
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
                    # Mark the error as retrieved, in case that the caller no longer waits.
                    future.exception()
            return
        self._flushed.inc()
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
                # Mark the error as retrieved, in case that the caller no longer waits.
                future.exception()
            else:
                future.set_result(result)
