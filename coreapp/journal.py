"""The one writer of a shard: changes that arrive during a commit share the next one.

Each batch is one transaction of all shards of the process (`coreapp/commits.py`), fenced by their leases. A change is
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
import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Protocol, TypeAlias

from coreapp.change_subjects import ALL, subjects_of
from coreapp.commits import CommitLane, Committer
from coreapp.crash_suspects import attach_suspects
from coreapp.errors import ChangeRefused, OutcomeUnknown
from coreapp.session_rows import SessionRows, UsedPreKey
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
    standins,
    template_events,
    undecrypted,
    upstream_ids,
)
from tidings.storage.business.base_keys import BASE_KEYS
from tidings.storage.business.callback_history import Attempt, EndedAttempt
from tidings.storage.business.quarantine import Item, Suspect
from tidings.storage.database import Connection, Database

log = logging.getLogger(__name__)

PATIENCE = 600.0  # seconds that a commit of one shard waits for an unreachable database
SHARED_PATIENCE = 10.0  # seconds that a transaction of several shards waits for it, before each commits by itself
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
    """Found identities and their acknowledgements. An acknowledgement applies to identities found before it."""

    def __init__(self, changes: Sequence[Change]) -> None:
        # For each acknowledgement of all identities: the account, and of which peers.
        self._all: list[tuple[str, Callable[[str], bool]]] = []
        self._found: dict[tuple[str, str], identities.StoredIdentity] = {}
        self._acknowledged: dict[tuple[str, str], list[bytes]] = {}
        for change in changes:
            for identity in change.found_identities:
                self._found[identity.account, identity.peer] = identity
                self._acknowledged.pop((identity.account, identity.peer), None)
            for peer, digest in change.acknowledged_identities:
                self._acknowledged.setdefault((change.account, peer), []).append(digest)
            if change.acknowledges_all is not None:
                self._all.append((change.account, change.acknowledges_all))
                for key, identity in self._found.items():
                    if key[0] == change.account and change.acknowledges_all(key[1]):
                        self._found[key] = dataclasses.replace(identity, acknowledged=True)

    def __bool__(self) -> bool:
        return bool(self._all or self._found or self._acknowledged)

    async def write(self, connection: Connection) -> None:
        for account, is_meant in self._all:
            await identities.acknowledge_all(connection, account, of=is_meant)
        await identities.save(connection, list(self._found.values()))
        for (account, peer), digests in self._acknowledged.items():
            await identities.acknowledge(connection, account, [(peer, digest) for digest in digests])


class _StandIns:
    """Numbers that stand for users. One that is issued and moved in a batch is added for its last user, so that a
    repeated commit finds it.
    """

    def __init__(self, changes: Sequence[Change]) -> None:
        # By account and number.
        self._new: dict[str, dict[str, standins.StandIn]] = {}
        self._moved: dict[str, dict[str, standins.StandIn]] = {}
        for change in changes:
            for row in change.new_standins:
                self._new.setdefault(row.account, {})[row.number] = row
            for row in change.moved_standins:
                new = self._new.get(row.account, {})
                (new if row.number in new else self._moved.setdefault(row.account, {}))[row.number] = row

    def __bool__(self) -> bool:
        return bool(self._new or self._moved)

    async def write(self, connection: Connection) -> None:
        for account, rows in sorted(self._new.items()):
            await standins.add(connection, account, list(rows.values()))
        for account, rows in sorted(self._moved.items()):
            await standins.move(connection, account, list(rows.values()))


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

    at: int | None = None  # time of the batch, as in `_Statuses`

    def __init__(self, changes: Sequence[Change]) -> None:
        self._ids = [message_id for change in changes for message_id in change.encrypted_messages]

    def __bool__(self) -> bool:
        return bool(self._ids) and self.at is not None

    async def write(self, connection: Connection) -> None:
        if self.at is not None:
            await messages.note_encrypted(connection, self._ids, self.at)


def _not_sealed(found: Sequence[callbacks.Callback]) -> Sequence[bytes]:
    raise RuntimeError("the change was not put into a journal")


# A callback, and what seals its body.
_Sealable: TypeAlias = tuple[callbacks.Callback, Seal]


class _Callbacks:
    """Callback rows of a batch. A callback's failures always precede its end, and only the end is written."""

    def __init__(self, changes: Sequence[Change]) -> None:
        # By account, whose data key seals the texts of its history. Empty to keep none.
        self._sealers = {change.account: change.history for change in changes if change.history is not None}
        self._attempts = [attempt for change in changes for attempt in change.attempts]
        self._ended = [ended for change in changes for ended in change.ended_callbacks] if self._sealers else []
        self._new: list[_Sealable] = []
        self._finished: list[int] = []
        self._failed: dict[int, _Sealable] = {}
        self._dead: list[_Sealable] = []
        # `seq` of new callbacks that were found void, and not written.
        self.void: set[int] = set()
        for change in changes:
            self._new += [(callback, change.seal) for callback in change.new_callbacks]
            for callback in change.failed_callbacks:
                self._failed[callback.seq] = (callback, change.seal)
            for callback in change.dead_callbacks:
                self._failed.pop(callback.seq, None)
                self._dead.append((callback, change.seal))
            for seq in change.finished_callbacks:
                self._failed.pop(seq, None)
                self._finished.append(seq)

    def __bool__(self) -> bool:
        return bool(self._new or self._finished or self._failed or self._dead or self._ended)

    async def write(self, connection: Connection) -> None:
        await self._find_void(connection)
        new = [entry for entry in self._new if not (entry[0].volatile or entry[0].seq in self.void)]
        await callbacks.enqueue(connection, *_sealed(new))
        if users := {user for callback, _ in new for user in callback.users}:
            # Shards of several numbers write the same rows, and lock them in the same order.
            await cloud_users.add(connection, sorted(users, key=attrgetter("account", "user_id")))
        if self._sealers:
            await callback_history.add(connection, self._ended, self._seal_texts)
            await callback_history.save_attempts(connection, self._sealed_attempts())
        await callbacks.finish(connection, self._finished)
        await callbacks.reschedule(connection, *_sealed(self._failed.values()))
        await callbacks.mark_dead(connection, *_sealed(self._dead))

    def _seal_texts(self, account: str, name: int, texts: bytes) -> bytes:
        return self._sealers[account].seal_texts(account, name, texts)

    def _sealed_attempts(self) -> Sequence[Attempt]:
        sealed: list[Attempt] = []
        for account, found in itertools.groupby(self._attempts, attrgetter("account")):
            sealed += self._sealers[account].seal_attempts(list(found))
        return sealed

    async def _find_void(self, connection: Connection) -> None:
        """Find blank callbacks, and callbacks whose message's author was not in memory, unless the message was written
        by that author.
        """
        conditional = [callback for callback, _ in self._new if callback.author]
        authors: dict[tuple[str, str], str] = {}
        for account in {callback.account for callback in conditional}:
            subjects = [callback.subject for callback in conditional if callback.account == account]
            for row in await messages.list_progress(connection, account, subjects):
                if row.status in (messages.Status.RECEIVED, messages.Status.MARKED_READ):
                    authors[account, row.id] = row.peer
        foreign = {c.seq for c in conditional if authors.get((c.account, c.subject)) != c.author}
        if foreign:
            log.warning("callbacks.not_of_their_author", extra={"count": len(foreign)})
        self.void = foreign | {callback.seq for callback, _ in self._new if callback.blank}


def _sealed(entries: Iterable[_Sealable]) -> tuple[Sequence[callbacks.Callback], Sequence[bytes]]:
    """Return the callbacks and their bodies as they are stored."""
    rows: list[callbacks.Callback] = []
    bodies: list[bytes] = []
    for seal, group in itertools.groupby(entries, itemgetter(1)):
        found = [callback for callback, _ in group]
        rows += found
        bodies += seal(found)
    return rows, bodies


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
    new_undecrypted: Sequence[undecrypted.UndecryptedMessage] = merging.rows(undecrypted.add)
    # ids of requested messages that arrived, or whose error was reported
    ended_undecrypted: Sequence[str] = merging.rows(undecrypted.delete)
    checked_contacts: Sequence[contacts.StoredContact] = merging.rows(
        contacts.save, key=attrgetter("account", "wa_id"), about="contacts"
    )
    # by recipient: time of their message, Unix milliseconds
    last_message_at: Mapping[str, int] | None = merging.mapping_by_account(
        service_windows.save_last_message_at, combine=max
    )
    unread_messages: Sequence[service_windows.UnreadMessage] = merging.rows(service_windows.add_unread)
    # by recipient: ids of their messages that are no longer unread
    read_messages: Mapping[str, Sequence[str]] | None = merging.mapping_by_account(
        service_windows.delete_unread, combine=merging.joined
    )
    # files that are already in their directory
    new_media: Sequence[media.MediaRow] = merging.rows(media.add_all)
    # files that were sent
    used_media: Sequence[media.MediaUse] = merging.rows(media.note_uses, key=attrgetter("id"))
    # messages whose file is to be fetched
    new_downloads: Sequence[media_downloads.Download] = merging.rows(media_downloads.enqueue)
    tried_downloads: Sequence[media_downloads.Download] = merging.rows(media_downloads.reschedule)
    finished_downloads: Sequence[str] = merging.rows(media_downloads.finish)
    # downloads that are not in memory and whose messages were revoked; their `found` fills callbacks
    withdrawn_downloads: Sequence[media_downloads.WithdrawnDownload] = merging.rows(media_downloads.withdraw)
    groups: group_changes.GroupChanges | None = merging.nested(group_changes.execute)  # noqa: RUF009
    # acknowledges the identities of all peers for which it returns true; None for no such acknowledgement
    acknowledges_all: Callable[[str], bool] | None = merging.part_of(_Identities, None, about="keys")  # noqa: RUF009
    found_identities: Sequence[identities.StoredIdentity] = merging.part_of(_Identities)
    # (peer, hash); void if the peer has another hash when it is written
    acknowledged_identities: Sequence[tuple[str, bytes]] = merging.part_of(_Identities)
    kyber_identities: Sequence[tuple[str, bytes]] = merging.rows_by_account(identities.note_kyber, about="keys")
    # the journal sets their `seq`, in the order of commits
    new_callbacks: Sequence[callbacks.Callback] = merging.part_of(_Callbacks)
    finished_callbacks: Sequence[int] = merging.part_of(_Callbacks)
    failed_callbacks: Sequence[callbacks.Callback] = merging.part_of(_Callbacks)
    dead_callbacks: Sequence[callbacks.Callback] = merging.part_of(_Callbacks)
    # finished callbacks for the history
    ended_callbacks: Sequence[EndedAttempt] = merging.part_of(_Callbacks)
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
    # numbers that stand for senders of these messages
    new_standins: Sequence[standins.StandIn] = merging.part_of(_StandIns)
    # the same numbers for users who have got another id
    moved_standins: Sequence[standins.StandIn] = merging.part_of(_StandIns)
    # quarantined deliveries, which the network may delete
    set_aside: Sequence[Suspect] = merging.rows(quarantine.save)
    # items that are no longer suspected or quarantined
    cleared_suspects: Sequence[Item] = merging.rows(quarantine.delete)
    # returns the items whose handling made this change; they count an attempt if the database refuses it
    made_from: Callable[[], Sequence[Item]] = tuple
    # returns the stored form of the callbacks' bodies; set by the journal
    seal: Seal = _not_sealed
    # seals texts of the account's history; None to keep none; set by the journal
    history: HistorySealer | None = None


_MERGER = merging.Merger(Change)


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
        for callback in itertools.chain.from_iterable(change.new_callbacks for change in changes):
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
            await _persist(self.database, [(self, changes)], patience=PATIENCE)
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
    await _persist(database, batches, patience=SHARED_PATIENCE)


async def _persist(database: Database, batches: Sequence[tuple[Journal, Sequence[Change]]], *, patience: float) -> None:
    """Commit the changes, whose callbacks have their `seq`, in one transaction that checks all leases first.

    patience: seconds for which it is retried while the database is unavailable
    """
    batch = _MERGER.merge([change for _, changes in batches for change in changes])
    # The settings, and so whether there is a history, are those of the process.
    first = batches[0][0]
    written = batch.part(_Callbacks)
    if first.history is not None:
        for part in (batch.part(_Statuses), batch.part(_Encrypted)):
            if part is not None:
                part.at = first.now_ns() // 1_000_000

    async def work(connection: Connection) -> None:
        await shards.fence_all(connection, [journal.lease for journal, _ in batches])
        await batch.write(connection)

    await database.persist(work, patience=patience, about=batch.about)
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
