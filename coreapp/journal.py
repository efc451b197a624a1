"""The one writer of a shard: changes that arrive during a commit share the next one.

Each batch is one transaction, fenced by the shard's lease. A change is on disk when `write` returns. Changes are
committed in the order in which they were put. After one failure nothing more is written: the state in memory may then
be ahead of the disk, so the shard must be closed and reopened.

When the database refuses a batch, its changes are committed one by one. Only the refused ones fail, and those that
follow a refused one and are about the same peers, messages or callbacks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Protocol

from coreapp.blame import blame
from coreapp.change_subjects import ALL, subjects_of
from coreapp.errors import ChangeRefused, OutcomeUnknown
from coreapp.session_rows import SessionRows, UsedPreKey
from tidings.aio.batcher import Batcher
from tidings.storage import merging, outages
from tidings.storage.base_keys import BaseKey
from tidings.storage.business import (
    callback_history,
    callbacks,
    cloud_limits,
    cloud_users,
    contacts,
    group_changes,
    idempotency,
    identities,
    job_errors,
    jobs,
    media,
    media_downloads,
    messages,
    quarantine,
    service_windows,
    sessions,
    shards,
    template_events,
    undecrypted,
    upstream_ids,
)
from tidings.storage.business.base_keys import BASE_KEYS
from tidings.storage.business.callback_history import Attempt, Ended
from tidings.storage.business.quarantine import Item, Suspect
from tidings.storage.database import Connection, Database

log = logging.getLogger(__name__)

# Seconds between two commits of changes that are not urgent. A small transaction costs as much CPU as 50 rows, so at
# low rates receipts and marks share the commit of the next message. An idle shard commits at once.
SPACING = 0.01
MAX_SIZE = 500  # changes per batch
PATIENCE = 600.0  # seconds that a commit waits for an unreachable database
STALL_SECONDS = 2.0  # duration of a commit in seconds after which no more messages are accepted

# Returns the stored form of callback bodies, in their order.
Seal = Callable[[Sequence[callbacks.Callback]], Sequence[bytes]]


class HistorySealer(Protocol):
    """Seals texts of the history."""

    def seal_attempts(self, found: Sequence[Attempt], /) -> Sequence[Attempt]:
        """Return the attempts in their order, with sealed responses."""
        ...

    def seal_texts(self, account: str, name: int, texts: bytes, /) -> bytes:
        """Return the sealed texts of a segment with this name."""
        ...


class _Identities:
    """Learnt identities and their acknowledgements. An acknowledgement applies to identities learnt before it."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self._all: dict[str, Callable[[str], bool]] = {}
        self._learnt: dict[tuple[str, str], identities.StoredIdentity] = {}
        self._acknowledged: dict[tuple[str, str], list[bytes]] = {}
        for change in changes:
            for identity in change.learnt_identities:
                self._learnt[identity.account, identity.peer] = identity
                self._acknowledged.pop((identity.account, identity.peer), None)
            for peer, digest in change.acknowledged_identities:
                self._acknowledged.setdefault((change.account, peer), []).append(digest)
            if change.acknowledges_all is not None:
                self._all[change.account] = change.acknowledges_all
                self._learnt = {
                    key: dataclasses.replace(identity, acknowledged=True) if key[0] == change.account else identity
                    for key, identity in self._learnt.items()
                }

    def __bool__(self) -> bool:
        return bool(self._all or self._learnt or self._acknowledged)

    async def write(self, connection: Connection) -> None:
        for account, is_meant in self._all.items():
            await identities.acknowledge_all(connection, account, of=is_meant)
        await identities.save(connection, list(self._learnt.values()))
        for (account, peer), digests in self._acknowledged.items():
            await identities.acknowledge(connection, account, [(peer, digest) for digest in digests])


class _Statuses:
    """Statuses that messages have reached, and the codes of failures."""

    at: int | None = None  # time of the batch, Unix milliseconds; None to store no times; set by the journal

    def __init__(self, changes: Sequence[Change]) -> None:
        self._reached: dict[str, messages.Status] = {}
        self._failures: dict[str, int] = {}
        for change in changes:
            for message_id, status in (change.statuses or {}).items():
                known = self._reached.get(message_id)
                self._reached[message_id] = status if known is None else max(known, status)
            if change.failed_messages:
                self._failures.update(change.failed_messages)

    def __bool__(self) -> bool:
        return bool(self._reached or self._failures)

    async def write(self, connection: Connection) -> None:
        await messages.advance(connection, self._reached, self.at)
        if self.at is not None:
            await messages.note_failures(connection, self._failures, self.at)


class _Encrypted:
    """Messages that were encrypted after their acceptance."""

    at: int | None = None  # as in `_Statuses`

    def __init__(self, changes: Sequence[Change]) -> None:
        self._ids = [message_id for change in changes for message_id in change.encrypted_messages]

    def __bool__(self) -> bool:
        return bool(self._ids) and self.at is not None

    async def write(self, connection: Connection) -> None:
        if self.at is not None:
            await messages.note_encrypted(connection, self._ids, self.at)


class _Callbacks:
    """Callback rows of a batch. A callback's failures always precede its end, and only the end is written."""

    # set by the journal; `history` is None to keep none
    seal: Seal
    history: HistorySealer | None = None

    def __init__(self, changes: Sequence[Change]) -> None:
        self._attempts = [attempt for change in changes for attempt in change.attempts]
        self._ended = [ended for change in changes for ended in change.ended_callbacks]
        self.new: list[callbacks.Callback] = []
        self._finished: list[int] = []
        self._failed: dict[int, callbacks.Callback] = {}
        self._dead: list[callbacks.Callback] = []
        for change in changes:
            self.new += change.new_callbacks
            for callback in change.failed_callbacks:
                self._failed[callback.seq] = callback
            for callback in change.dead_callbacks:
                self._failed.pop(callback.seq, None)
                self._dead.append(callback)
            for seq in change.finished_callbacks:
                self._failed.pop(seq, None)
                self._finished.append(seq)

    def __bool__(self) -> bool:
        return bool(self.new or self._finished or self._failed or self._dead)

    async def write(self, connection: Connection) -> None:
        await self._drop_void(connection)
        new = [callback for callback in self.new if not callback.volatile]
        await callbacks.enqueue(connection, new, self.seal(new))
        if users := {user for callback in new for user in callback.users}:
            # Shards of several numbers write the same rows, and lock them in the same order.
            await cloud_users.add(connection, sorted(users, key=attrgetter("account", "user_id")))
        if self.history is not None:
            await callback_history.keep(connection, self._ended, self.history.seal_texts)
            await callback_history.save_attempts(connection, self.history.seal_attempts(self._attempts))
        await callbacks.finish(connection, self._finished)
        failed = list(self._failed.values())
        await callbacks.reschedule(connection, failed, self.seal(failed))
        await callbacks.bury(connection, self._dead, self.seal(self._dead))

    async def _drop_void(self, connection: Connection) -> None:
        """Drop callbacks whose message's author was not in memory, unless the message was written by that author."""
        doubtful = [callback for callback in self.new if callback.author]
        authors: dict[tuple[str, str], str] = {}
        for account in {callback.account for callback in doubtful}:
            asked = [callback.subject for callback in doubtful if callback.account == account]
            for row in await messages.list_progress(connection, account, asked):
                if row.status in (messages.Status.RECEIVED, messages.Status.MARKED_READ):
                    authors[account, row.id] = row.peer
        void = {c.seq for c in doubtful if authors.get((c.account, c.subject)) != c.author}
        if void:
            log.warning("callbacks.not_of_their_author", extra={"count": len(void)})
            self.new = [callback for callback in self.new if callback.seq not in void]


@dataclasses.dataclass(slots=True)
class Change:
    """Rows of one unit of work, written all or nothing: a field for each kind of row, in the order of the writes."""

    account: str
    new_messages: Sequence[messages.MessageRow] = merging.rows(messages.add)
    used_keys: Sequence[idempotency.UsedKey] = merging.rows(idempotency.save)
    # new jobs, or existing ones that have become `ENCRYPTED`
    enqueued_jobs: Sequence[jobs.Job] = merging.rows(jobs.enqueue, key=attrgetter("id"), about="jobs")
    finished_jobs: Sequence[str] = merging.rows(jobs.finish, about="jobs")
    # messages whose jobs have become `ENCRYPTED`
    encrypted_messages: Sequence[str] = merging.part_of(_Encrypted, about="jobs")
    # records of failed attempts at queued jobs; deleted with the jobs that leave the queue
    failures: job_errors.JobErrorChanges | None = merging.nested(job_errors.execute, about="jobs")  # noqa: RUF009
    # peers whose session is deleted
    dropped_sessions: Sequence[str] = merging.part_of(SessionRows, about="keys")
    whole_sessions: Sequence[sessions.SealedSession] = merging.part_of(SessionRows)
    sending_halves: Sequence[sessions.SealedSendingHalf] = merging.part_of(SessionRows)
    # own one-time pre-keys that were used
    used_prekeys: Sequence[UsedPreKey] = merging.part_of(SessionRows)
    # base keys of first messages that opened these sessions without a one-time pre-key
    new_base_keys: Sequence[BaseKey] = merging.rows(BASE_KEYS.add, about="keys")
    statuses: Mapping[str, messages.Status] | None = merging.part_of(_Statuses, None)
    # by message id: code of the failure
    failed_messages: Mapping[str, int] | None = merging.part_of(_Statuses, None)
    # by message id: the content kept for sending it again
    kept: Mapping[str, bytes] | None = merging.mapping(messages.keep)
    # by message id: the type, for messages whose type was not known before
    renamed: Mapping[str, str] | None = merging.mapping(messages.change_kinds)
    # messages that were requested again from their sender
    new_undecrypted: Sequence[undecrypted.Undecrypted] = merging.rows(undecrypted.add)
    # ids of requested messages that arrived, or whose error was reported
    ended_undecrypted: Sequence[str] = merging.rows(undecrypted.delete)
    checked_contacts: Sequence[contacts.StoredContact] = merging.rows(
        contacts.save, key=attrgetter("account", "wa_id"), about="contacts"
    )
    # by recipient: time of their message, Unix milliseconds
    heard: Mapping[str, int] | None = merging.mapping_by_account(service_windows.save_heard)
    unread_messages: Sequence[service_windows.Unread] = merging.rows(service_windows.add_unread)
    # by recipient: ids of their messages that are no longer unread
    read_messages: Mapping[str, Sequence[str]] | None = merging.mapping_by_account(
        service_windows.delete_unread, combine=merging.joined
    )
    # files that are already in their directory
    new_media: Sequence[media.MediaRow] = merging.rows(media.add_all)
    # files that were sent
    used_media: Sequence[media.Use] = merging.rows(media.note_uses, key=attrgetter("id"))
    # messages whose file is to be fetched
    new_downloads: Sequence[media_downloads.Download] = merging.rows(media_downloads.enqueue)
    tried_downloads: Sequence[media_downloads.Download] = merging.rows(media_downloads.reschedule)
    finished_downloads: Sequence[str] = merging.rows(media_downloads.finish)
    groups: group_changes.GroupChanges | None = merging.nested(group_changes.execute)  # noqa: RUF009
    # acknowledges the identities of all peers for which it returns true; None for no such acknowledgement
    acknowledges_all: Callable[[str], bool] | None = merging.part_of(_Identities, None, about="keys")  # noqa: RUF009
    learnt_identities: Sequence[identities.StoredIdentity] = merging.part_of(_Identities)
    # (peer, hash); void if the peer has another hash when it is written
    acknowledged_identities: Sequence[tuple[str, bytes]] = merging.part_of(_Identities)
    kyber_identities: Sequence[tuple[str, bytes]] = merging.rows_by_account(identities.note_kyber, about="keys")
    # the journal sets their `seq`, in the order of commits
    new_callbacks: Sequence[callbacks.Callback] = merging.part_of(_Callbacks)
    finished_callbacks: Sequence[int] = merging.part_of(_Callbacks)
    failed_callbacks: Sequence[callbacks.Callback] = merging.part_of(_Callbacks)
    dead_callbacks: Sequence[callbacks.Callback] = merging.part_of(_Callbacks)
    # finished callbacks for the history
    ended_callbacks: Sequence[Ended] = merging.part_of(_Callbacks)
    # attempts at failed and dead callbacks for the history
    attempts: Sequence[Attempt] = merging.part_of(_Callbacks)
    # ids of events of templates that have a callback, or that none is to report
    ended_template_events: Sequence[str] = merging.rows(template_events.delete)
    # limits of numbers that have callbacks, or that none is to report
    announced_limits: Sequence[cloud_limits.AnnouncedLimits] = merging.rows(
        cloud_limits.set_announced, key=attrgetter("account")
    )
    # ids of the real Cloud API beside our own
    new_upstream_ids: Sequence[upstream_ids.UpstreamId] = merging.rows(upstream_ids.add)
    # quarantined deliveries, which the network may delete
    set_aside: Sequence[Suspect] = merging.rows(quarantine.save)
    # items that are no longer suspected or quarantined
    cleared_suspects: Sequence[Item] = merging.rows(quarantine.delete)
    # returns the items whose handling made this change; they count an attempt if the database refuses it
    made_from: Callable[[], Sequence[Item]] = tuple


_MERGER = merging.Merger(Change)


@dataclasses.dataclass(eq=False, repr=False)
class Journal:
    """Commits changes in batches of at most `MAX_SIZE`, strictly in order, under one lease."""

    database: Database
    lease: shards.Lease
    _: dataclasses.KW_ONLY
    last_seq: int  # highest callback `seq` in use
    seal: Seal  # returns the stored form of callback bodies
    now_ns: Callable[[], int] = time.time_ns  # returns Unix nanoseconds
    history: HistorySealer | None = None  # seals texts of the history; None to keep none

    def __post_init__(self) -> None:
        self._block, self._partition = self.lease.block, self.lease.partition
        self._listeners: list[Callable[[Sequence[callbacks.Callback]], None]] = []
        # Loop time at the start of the commit in flight; infinite while there is none.
        self._committing_since = math.inf
        # Completed with the error at the first failure.
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._batcher: Batcher[Change, None] = Batcher("journal", self._flush, max_size=MAX_SIZE, spacing=SPACING)

    def on_callbacks(self, call: Callable[[Sequence[callbacks.Callback]], None]) -> None:
        """Register `call` to be called with new callbacks once they are on disk. Callbacks found void during the commit
        are not included.
        """
        self._listeners.append(call)

    @property
    def is_stalled(self) -> bool:
        """Return whether the commit in flight takes longer than `STALL_SECONDS`, because the database is unreachable or
        hangs.
        """
        return asyncio.get_running_loop().time() - self._committing_since > STALL_SECONDS

    def put(self, change: Change, *, urgent: bool = False) -> asyncio.Future[None]:
        """Queue a change. The future completes when the change is on disk; it raises `LeaseLost`, `ChangeRefused`,
        `OutcomeUnknown` or the database's error.

        urgent: a caller waits for it, so the commit is not delayed to batch it with others
        """
        return self._batcher.put(change, urgent=urgent)

    async def write(self, change: Change) -> None:
        """Queue a change and wait until it is on disk."""
        await self._batcher.put(change, urgent=True)

    def fail(self, error: BaseException) -> None:
        """Write nothing more, because memory may differ from the disk."""
        if not self.broken.done():
            self.broken.set_exception(error)
            # Mark the exception as retrieved: watching the journal is optional.
            self.broken.exception()

    async def close(self) -> None:
        """Commit the queued changes."""
        await self._batcher.close()

    async def _flush(self, changes: Sequence[Change]) -> Sequence[Exception | None]:
        if self.broken.done():
            self.broken.result()
        try:
            await self._commit(changes)
        except Exception as error:
            if not _is_refusal(error):
                self.fail(error)
                if outages.may_be_committed(error):
                    raise OutcomeUnknown(repr(error)) from error
                raise
            if len(changes) == 1:
                refused = _refused(changes[0], error)
                self.fail(refused)
                raise refused from error
            log.warning("journal.isolating", extra={"changes": len(changes), "error": outages.brief(error)})
            return await self._commit_one_by_one(changes)
        return [None] * len(changes)

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
            try:
                await self._commit([change])
            except Exception as error:
                if not _is_refusal(error):
                    self.fail(error)
                    unknown = outages.may_be_committed(error)
                    failed = OutcomeUnknown(repr(error)) if unknown else error
                    return [*results, failed, *[error] * (len(changes) - len(results) - 1)]
                results.append(_refused(change, error))
                refused |= subjects
                first = first or results[-1]
            else:
                results.append(None)
        if first is not None:
            self.fail(first)
        return results

    async def _commit(self, changes: Sequence[Change]) -> None:
        """Commit the changes in one transaction."""
        batch = _MERGER.merge(changes)
        written = batch.part(_Callbacks)
        written.seal, written.history = self.seal, self.history
        if self.history is not None:
            batch.part(_Statuses).at = batch.part(_Encrypted).at = self.now_ns() // 1_000_000
        for callback in written.new:
            callback.seq = self._next_seq()

        async def work(connection: Connection) -> None:
            await shards.fence(connection, self.lease)
            await batch.write(connection)

        self._committing_since = asyncio.get_running_loop().time()
        try:
            await self.database.persist(work, patience=PATIENCE, about=batch.about)
        finally:
            self._committing_since = math.inf
        if written.new:
            for call in self._listeners:
                call(written.new)

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


def _is_refusal(error: Exception) -> bool:
    """Return whether the database will refuse the change at every attempt, and has nothing of it."""
    return outages.refuses_row(error) and not outages.may_be_committed(error)


def _refused(change: Change, error: Exception) -> ChangeRefused:
    refused = ChangeRefused(outages.brief(error))
    refused.__cause__ = error
    items = change.made_from()
    blame(refused, items)
    log.error("journal.refused", extra={"error": outages.brief(error), "items": len(items)})
    return refused
