"""Shared transactions: the changes of all shards of a process that wait for a commit go into the next one.

A small transaction costs as much CPU as 50 rows, whichever shards the rows belong to. Each shard has a lane, whose
changes are committed in their order. When a shared transaction fails, each lane commits its own changes by itself. So
a lost lease or a refused row concerns no other shard, and a shard that waits for a lock delays the others once.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from tidings.aio.batcher import FLUSHES, SIZES, BatcherClosed, BatcherFull
from tidings.aio.queues import QUEUES
from tidings.storage import outages

Item = TypeVar("Item")
ItemContra = TypeVar("ItemContra", contravariant=True)

log = logging.getLogger(__name__)

NAME = "journal"  # name of the queue and of the batches in metrics
# Seconds between two commits of changes that are not urgent, so that at low rates receipts and marks share the commit
# of the next message. An idle process commits at once.
SPACING = 0.01
MAX_SIZE = 500  # changes per transaction; when more wait, lanes get equal parts
MAX_PENDING = 100_000  # changes of a lane that wait for a transaction; one more raises `BatcherFull`


class LaneOwner(Protocol[ItemContra]):
    """Shard whose changes are committed."""

    broken: asyncio.Future[None]  # completed with the error after which nothing more is written

    def fail(self, error: BaseException) -> None:
        """Complete `broken` with this error, unless it is completed."""
        ...

    async def commit_alone(
        self, changes: Sequence[ItemContra], earlier: Exception, *, was_alone: bool
    ) -> Sequence[Exception | None]:
        """Commit changes after a transaction that had them has failed with `earlier`. Returns the error of each; None
        for those on disk.

        was_alone: whether the transaction had no changes of other shards
        """
        ...


Owner = TypeVar("Owner", bound=LaneOwner[Any])
_Entry: TypeAlias = tuple[Item, asyncio.Future[None]]


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class CommitLane(Generic[Owner, Item]):
    """Changes of one shard that are not on disk yet, in their order."""

    owner: Owner
    pending: collections.deque[_Entry[Item]] = dataclasses.field(default_factory=collections.deque)
    # Changes in a transaction. While there are any, the pending ones wait.
    in_flight: int = 0
    started: float = math.inf  # loop time at which that transaction started; infinite without one
    is_closed: bool = False
    # Completed when nothing is left of a closed lane.
    drained: asyncio.Future[None] | None = None


class Committer(Generic[Owner, Item]):
    """Commits the changes of all lanes of a process, one shared transaction at a time.

    An urgent change is committed as soon as the transaction in flight has ended, with everything that waits. Lanes that
    commit by themselves after a failure take part again when they have finished.
    """

    def __init__(self, commit: Callable[[Sequence[tuple[Owner, Sequence[Item]]]], Awaitable[None]]) -> None:
        """Create the committer of a process.

        commit: commits the changes of these shards in one transaction
        """
        self._commit = commit
        # Lanes that the next transaction may take from, the one that was taken from least recently first.
        self._ready: dict[CommitLane[Owner, Item], None] = {}
        self._waiting = 0  # changes of these lanes
        self._depth = 0  # changes of all lanes, with those in flight
        # `time.monotonic()` at which the changes in flight of a lane were taken.
        self._taken_at: dict[CommitLane[Owner, Item], float] = {}
        self._earliest = 0.0
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        # The task that commits shared transactions, and loop time of the start of the one in flight.
        self._shared: asyncio.Task[None] | None = None
        self._shared_since = math.inf
        # Commits of single lanes after failures.
        self._separate: set[asyncio.Task[None]] = set()
        self._sizes = SIZES.labels(NAME)
        self._flushed = FLUSHES.labels(NAME, "ok")
        self._failed = FLUSHES.labels(NAME, "failed")
        self._through = QUEUES.join(NAME, self)

    @property
    def depth(self) -> int:
        """Changes that are not on disk yet."""
        return self._depth

    @property
    def since(self) -> float | None:
        """Start of the oldest transaction in flight (`time.monotonic()`); None when there is none."""
        return min(self._taken_at.values(), default=None)

    def waited(self, lane: CommitLane[Owner, Item]) -> float:
        """Return for how many seconds the transaction that a new change of this lane waits for has been in flight; 0
        without one.
        """
        return max(0.0, asyncio.get_running_loop().time() - min(lane.started, self._shared_since))

    def put(self, lane: CommitLane[Owner, Item], change: Item, *, urgent: bool = False) -> asyncio.Future[None]:
        """Queue a change; the future completes when it is on disk. Raises `BatcherFull` and `BatcherClosed`.

        urgent: commit without waiting for the spacing
        """
        if lane.is_closed:
            raise BatcherClosed(NAME)
        if len(lane.pending) >= MAX_PENDING:
            raise BatcherFull(NAME)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        lane.pending.append((change, future))
        self._depth += 1
        if urgent:
            self._earliest = 0.0
        if not lane.in_flight:
            self._ready[lane] = None
            self._waiting += 1
            if not self._is_scheduled and self._shared is None:
                self._schedule(loop)
            elif self._timer is not None and (urgent or self._waiting >= MAX_SIZE):
                # A full transaction does not wait for the spacing either.
                self._timer.cancel()
                self._schedule(loop)
        return future

    async def close(self, lane: CommitLane[Owner, Item]) -> None:
        """Accept no more changes of this lane, and commit those that wait. Changes of other lanes are not waited for,
        except for those in flight.
        """
        lane.is_closed = True
        while lane.pending or lane.in_flight:
            if lane.drained is None:
                lane.drained = asyncio.get_running_loop().create_future()
            self._earliest = 0.0
            if self._timer is not None:
                self._start()
            await asyncio.shield(lane.drained)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_scheduled = True
        self._timer = None
        if self._is_due(loop):
            loop.call_soon(self._start)
        else:
            self._timer = loop.call_at(self._earliest, self._start)

    def _is_due(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._waiting >= (MAX_SIZE if loop.time() < self._earliest else 1)

    def _start(self) -> None:
        self._is_scheduled = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._shared is None:
            self._shared = asyncio.get_running_loop().create_task(self._work(), name="commit")
            self._shared.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._shared = None
        if self._waiting and not self._is_scheduled:
            self._schedule(asyncio.get_running_loop())

    async def _work(self) -> None:
        """Commit what is due. The next transaction starts before the callers of the last one resume."""
        loop = asyncio.get_running_loop()
        is_due = True
        while is_due:
            self._earliest = loop.time() + SPACING
            await self._run(list(self._take()))
            is_due = self._is_due(loop)

    def _take(self) -> Iterator[tuple[CommitLane[Owner, Item], Sequence[_Entry[Item]]]]:
        """Yield the changes of the next transaction by lane. Of more than `MAX_SIZE` changes each lane has an equal
        share, and what a shorter lane leaves goes to the longer ones. Changes of broken shards fail.
        """
        is_full = self._waiting > MAX_SIZE
        lanes = list(self._ready)
        if is_full:
            lanes = sorted(lanes[:MAX_SIZE], key=lambda lane: len(lane.pending))
        room, now = MAX_SIZE, asyncio.get_running_loop().time()
        for place, lane in enumerate(lanes):
            count = min(len(lane.pending), room // (len(lanes) - place) if is_full else room)
            del self._ready[lane]
            self._waiting -= len(lane.pending)
            entries = [lane.pending.popleft() for _ in range(count)]
            lane.in_flight, lane.started, self._taken_at[lane] = count, now, time.monotonic()
            if lane.owner.broken.done():
                error = lane.owner.broken.exception()
                self._settle(lane, entries, [error] * count)
            else:
                room -= count
                yield lane, entries

    async def _run(self, batch: Sequence[tuple[CommitLane[Owner, Item], Sequence[_Entry[Item]]]]) -> None:
        if not batch:
            return
        count = sum(len(entries) for _, entries in batch)
        self._sizes.observe(count)
        self._shared_since = asyncio.get_running_loop().time()
        try:
            await self._commit([(lane.owner, [change for change, _ in entries]) for lane, entries in batch])
        except asyncio.CancelledError:
            for _, entries in batch:
                _cancel(entries)
            raise
        except Exception as error:
            self._failed.inc()
            was_alone = len(batch) == 1
            if not was_alone:
                fields = {"shards": len(batch), "changes": count, "error": outages.brief(error)}
                log.warning("journal.separating", extra=fields)
            for lane, entries in batch:
                task = asyncio.create_task(self._run_alone(lane, entries, error, was_alone=was_alone), name="commit")
                self._separate.add(task)
                task.add_done_callback(self._separate.discard)
        else:
            self._flushed.inc()
            for lane, entries in batch:
                self._settle(lane, entries, [None] * len(entries))
        finally:
            self._shared_since = math.inf

    async def _run_alone(
        self, lane: CommitLane[Owner, Item], entries: Sequence[_Entry[Item]], earlier: Exception, *, was_alone: bool
    ) -> None:
        """Commit the changes of one lane after a failure. The lane takes part in shared transactions again then."""
        results: Sequence[BaseException | None]
        try:
            results = await lane.owner.commit_alone([change for change, _ in entries], earlier, was_alone=was_alone)
        except asyncio.CancelledError:
            _cancel(entries)
            raise
        except Exception as error:
            lane.owner.fail(error)
            results = [error] * len(entries)
        self._settle(lane, entries, results)
        if self._waiting and not self._is_scheduled and self._shared is None:
            self._schedule(asyncio.get_running_loop())

    def _settle(
        self, lane: CommitLane[Owner, Item], entries: Sequence[_Entry[Item]], results: Sequence[BaseException | None]
    ) -> None:
        """Complete the futures of changes whose transaction has ended, and make their lane ready for the next one."""
        lane.in_flight, lane.started = 0, math.inf
        del self._taken_at[lane]
        self._depth -= len(entries)
        self._through.left += len(entries)
        if lane.pending:
            self._ready[lane] = None
            self._waiting += len(lane.pending)
        elif lane.drained is not None:
            lane.drained.set_result(None)
            lane.drained = None
        for (_, future), error in zip(entries, results, strict=True):
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
                # Mark the error as retrieved, in case that the caller no longer waits.
                future.exception()


def _cancel(entries: Sequence[_Entry[Any]]) -> None:
    for _, future in entries:
        future.cancel()
