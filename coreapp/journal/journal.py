"""The one writer of a shard: changes that arrive during a commit share the next one.

Each batch is one transaction of all shards of the process (`commits.py`), fenced by their leases. A change is
on disk when `write` returns. Changes of a shard are committed in the order in which they were put. After one failure
nothing more of the shard is written: the state in memory may then be ahead of the disk, so the shard must be closed and
reopened.

When a shared transaction fails, each shard commits its changes by itself. When the database refuses these, they are
committed one by one. Only the refused ones fail, and those that follow a refused one and are about the same peers,
messages or callbacks.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Collection, Sequence

from coreapp.crash_suspects import attach_suspects
from coreapp.errors import ChangeRefused, OutcomeUnknown
from coreapp.journal.callback_rows import CallbackRows, HistorySealer, Seal
from coreapp.journal.change import Change, merge
from coreapp.journal.commits import CommitLane, Committer
from coreapp.journal.subjects import ALL, subjects_of
from tidings.storage import outages
from tidings.storage.business import callbacks, shards
from tidings.storage.database import Connection, Database

log = logging.getLogger(__name__)

RETRY_SECONDS = 600.0  # seconds that a commit of one shard waits for an unreachable database
SHARED_RETRY_SECONDS = 10.0  # seconds that a transaction of several shards waits for it, before each commits by itself
STALL_SECONDS = 2.0  # duration of a commit in seconds after which no more messages are accepted


@dataclasses.dataclass(eq=False, repr=False)
class Journal:
    """Commits the changes of a shard, strictly in order, under one lease."""

    database: Database
    lease: shards.Lease
    _: dataclasses.KW_ONLY
    last_seq: int  # highest callback `seq` in use
    seal: Seal  # returns the stored form of callback bodies
    now_ns: Callable[[], int] = time.time_ns  # returns Unix nanoseconds
    history: HistorySealer | None = None  # seals texts of the history; None to keep none
    committer: Committer[Journal, Change] | None = None  # shared by the journals of a process; None for an own one

    def __post_init__(self) -> None:
        self._block, self._partition = self.lease.block, self.lease.partition
        self._listeners: list[Callable[[Sequence[callbacks.Callback]], None]] = []
        self._before: list[Callable[[Collection[str]], None]] = []
        # Subjects of new callbacks that are not on disk yet, and their number.
        self._reporting: collections.Counter[str] = collections.Counter()
        # Completed with the error at the first failure.
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._committer = self.committer or make_committer(self.database)
        self._lane = CommitLane[Journal, Change](self)

    def on_callbacks(self, call: Callable[[Sequence[callbacks.Callback]], None]) -> None:
        """Register `call` to be called with new callbacks once they are on disk. Callbacks found void during the commit
        are not included.
        """
        self._listeners.append(call)

    def before_statuses(self, call: Callable[[Collection[str]], None]) -> None:
        """Register `call` to be called with the ids of the messages that a change has statuses of, before the change
        is queued.
        """
        self._before.append(call)

    def is_about_to_report(self, subject: str) -> bool:
        """Return whether new callbacks of this subject are not on disk yet."""
        return subject in self._reporting

    @property
    def is_stalled(self) -> bool:
        """Return whether the commit in flight takes longer than `STALL_SECONDS`, because the database is unreachable or
        hangs.
        """
        return self._committer.waited(self._lane) > STALL_SECONDS

    def put(self, change: Change, *, urgent: bool = False) -> asyncio.Future[None]:
        """Queue a change. The future completes when the change is on disk; it raises `LeaseLost`, `ChangeRefused`,
        `OutcomeUnknown` or the database's error.

        urgent: a caller waits for it, so the commit is not delayed to batch it with others
        """
        change.seal, change.history = self.seal, self.history
        if change.statuses:
            for call in self._before:
                call(change.statuses)
        committed = self._committer.put(self._lane, change, urgent=urgent)
        for callback in change.new_callbacks:
            self._reporting[callback.subject] += 1
        return committed

    async def write(self, change: Change) -> None:
        """Queue a change and wait until it is on disk."""
        await self.put(change, urgent=True)

    def fail(self, error: BaseException) -> None:
        """Write nothing more, because memory may differ from the disk."""
        if not self.broken.done():
            self.broken.set_exception(error)
            # Mark the exception as retrieved: watching the journal is optional.
            self.broken.exception()

    async def close(self) -> None:
        """Commit the queued changes."""
        await self._committer.close(self._lane)

    def number_callbacks(self, changes: Sequence[Change]) -> None:
        """Set the `seq` of new callbacks that have none, in the order of commits."""
        for change in changes:
            self.number(change.new_callbacks)

    def number(self, new: Sequence[callbacks.Callback]) -> None:
        """Set the `seq` of callbacks that have none."""
        for callback in new:
            if not callback.seq:
                callback.seq = self._next_seq()

    def committed(self, changes: Sequence[Change], void: Collection[int]) -> None:
        """Pass on the new callbacks of changes that are on disk.

        void: `seq` of callbacks that were not written
        """
        new: list[callbacks.Callback] = []
        for callback in [callback for change in changes for callback in change.new_callbacks]:
            self._reporting[callback.subject] -= 1
            if not self._reporting[callback.subject]:
                del self._reporting[callback.subject]
            if callback.seq not in void:
                new.append(callback)
        if new:
            for call in self._listeners:
                call(new)

    async def commit_alone(
        self, changes: Sequence[Change], earlier: Exception, *, was_alone: bool
    ) -> Sequence[Exception | None]:
        """Commit changes in a transaction of this shard, unless the earlier one was the same and will fail again.
        Returns the error of each change; None for those on disk.

        earlier: error of the transaction that failed
        was_alone: whether it had no changes of other shards
        """
        error: Exception | None = earlier
        if not was_alone or outages.is_outage(earlier):
            error = await self._try(changes, uncertain=outages.may_be_committed(earlier))
        if error is None:
            return [None] * len(changes)
        if not _is_refusal(error):
            self.fail(error)
            return [_unknown_or(error)] * len(changes)
        if len(changes) == 1:
            refused = _refused(changes[0], error)
            self.fail(refused)
            return [refused]
        log.warning("journal.isolating", extra={"changes": len(changes), "error": outages.brief(error)})
        return await self._commit_one_by_one(changes)

    async def _try(self, changes: Sequence[Change], *, uncertain: bool = False) -> Exception | None:
        """Commit changes in a transaction of this shard. Returns the error; None if they are on disk.

        uncertain: whether an earlier attempt may have succeeded
        """
        try:
            await _persist(self.database, [(self, changes)], retry_seconds=RETRY_SECONDS)
        except Exception as error:
            if uncertain:
                outages.note_commit(error)
            return error
        return None

    async def _commit_one_by_one(self, changes: Sequence[Change]) -> Sequence[Exception | None]:
        """Commit the changes of a refused batch, each in its own transaction. Returns the error of each; None for those
        on disk. If one fails, nothing is written after the batch.
        """
        results: list[Exception | None] = []
        refused: set[str] = set()
        first: Exception | None = None
        for change in changes:
            subjects = subjects_of(change)
            if refused and (ALL in refused or ALL in subjects or not refused.isdisjoint(subjects)):
                results.append(ChangeRefused("an earlier change about the same rows was refused"))
                refused |= subjects
                continue
            error = await self._try([change])
            if error is None:
                results.append(None)
            elif not _is_refusal(error):
                self.fail(error)
                return [*results, _unknown_or(error), *[error] * (len(changes) - len(results) - 1)]
            else:
                results.append(_refused(change, error))
                refused |= subjects
                first = first or results[-1]
        if first is not None:
            self.fail(first)
        return results

    def _next_seq(self) -> int:
        # Microseconds, then 5 bits of partition: increases strictly and never equals a `seq` of another shard. Of 256
        # microseconds, the first number uses the first 128, and each further number one.
        microseconds = max(self.now_ns() // 1000, (self.last_seq >> 5) + 1)
        if self._block:
            microseconds += (128 + self._block - microseconds) % 256
        elif microseconds % 256 >= 128:
            microseconds += 256 - microseconds % 256
        self.last_seq = microseconds << 5 | self._partition
        return self.last_seq


def make_committer(database: Database) -> Committer[Journal, Change]:
    """Return a committer for all journals of a process on this database."""
    return Committer(functools.partial(_commit_together, database))


async def _commit_together(database: Database, batches: Sequence[tuple[Journal, Sequence[Change]]]) -> None:
    """Commit the changes of several shards in one transaction."""
    for journal, changes in batches:
        journal.number_callbacks(changes)
    await _persist(database, batches, retry_seconds=SHARED_RETRY_SECONDS)


async def _persist(
    database: Database, batches: Sequence[tuple[Journal, Sequence[Change]]], *, retry_seconds: float
) -> None:
    """Commit the changes, whose callbacks have their `seq`, in one transaction that checks all leases first.

    retry_seconds: time for which it is retried while the database is unavailable
    """
    # The settings, and so whether there is a history, are those of the process.
    first = batches[0][0]
    at = first.now_ns() // 1_000_000 if first.history is not None else None
    batch = merge([change for _, changes in batches for change in changes], at=at)
    written = batch.part(CallbackRows)

    async def work(connection: Connection) -> None:
        await shards.fence_all(connection, [journal.lease for journal, _ in batches])
        await batch.write(connection)

    await database.persist(work, retry_seconds=retry_seconds, about=batch.about)
    for journal, changes in batches:
        try:
            journal.committed(changes, written.void if written is not None else frozenset())
        except Exception as error:
            # The changes are on disk, but memory lacks some of their callbacks.
            log.exception("journal.listener_failed")
            journal.fail(error)


def _unknown_or(error: Exception) -> Exception:
    """Return `OutcomeUnknown` if a commit that failed with this error may have succeeded, else the error."""
    if not outages.may_be_committed(error):
        return error
    unknown = OutcomeUnknown(repr(error))
    unknown.__cause__ = error
    return unknown


def _is_refusal(error: Exception) -> bool:
    """Return whether the database will refuse the change at every attempt, and has nothing of it."""
    return outages.refuses_row(error) and not outages.may_be_committed(error)


def _refused(change: Change, error: Exception) -> ChangeRefused:
    refused = ChangeRefused(outages.brief(error))
    refused.__cause__ = error
    items = change.made_from()
    attach_suspects(refused, items)
    log.error("journal.refused", extra={"error": outages.brief(error), "items": len(items)})
    return refused
