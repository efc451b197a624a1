"""The one writer of a shard: changes that arrive while one commit is in flight share the next.

Each batch is one transaction, fenced by the shard's lease. A change is on disk when `write` returns; changes are
committed in the order in which they were given. After one failure nothing more is written: what is in memory may then
be ahead of the disk, so the shard has to be left and taken anew.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence

from coreapp.errors import OutcomeUnknown
from tidings.runtime.batcher import Batcher
from tidings.storage.business import (
    accounts,
    callbacks,
    contacts,
    group_changes,
    idempotency,
    identities,
    jobs,
    media,
    media_downloads,
    messages,
    service_windows,
    sessions,
    shards,
    undecrypted,
)
from tidings.storage.database import Connection, Database, Subject

log = logging.getLogger(__name__)

# Seconds between two commits of changes that nobody waits for. A small transaction costs as much CPU as fifty rows, so
# at low rates receipts and marks wait for the next message; an idle shard commits at once.
SPACING = 0.01
PATIENCE = 600.0  # seconds that a commit waits for a database that is away
STALL_SECONDS = 2.0  # that a commit takes before nothing more is taken in


@dataclasses.dataclass(slots=True)
class Change:
    """What one unit of work writes, all or nothing.

    enqueued_jobs:    new ones, or ones that are there and have become `ENCRYPTED`.
    dropped_sessions: the peers whose session is forgotten.
    used_prekeys:     ids of own one-time pre-keys that are used up.
    heard:            recipients who wrote, with the Unix milliseconds.
    read_messages:    by recipient, those of theirs that are unread no longer.
    new_callbacks:    their `seq` is given by the journal, in the order of commits.
    kept: by message, what it takes to send it again; renamed: messages whose type is known only now.
    new_undecrypted: messages that were asked for again; ended_undecrypted: that came, or were told of.
    acknowledged_identities: (peer, hash), void when the peer has another hash by then; acknowledges_all: of everybody.
    new_media:        files that are in their directory already; new_downloads: messages whose file is to be fetched.
    """

    account: str
    new_messages: Sequence[messages.Message] = ()
    enqueued_jobs: Sequence[jobs.Job] = ()
    finished_jobs: Sequence[str] = ()
    whole_sessions: Sequence[sessions.Session] = ()
    sending_halves: Sequence[sessions.SendingHalf] = ()
    dropped_sessions: Sequence[str] = ()
    used_prekeys: Sequence[int] = ()
    statuses: Mapping[str, messages.Status] | None = None
    kept: Mapping[str, bytes] | None = None
    renamed: Mapping[str, str] | None = None
    new_undecrypted: Sequence[undecrypted.Undecrypted] = ()
    ended_undecrypted: Sequence[str] = ()
    checked_contacts: Sequence[contacts.Contact] = ()
    heard: Mapping[str, int] | None = None
    unread_messages: Sequence[service_windows.Unread] = ()
    read_messages: Mapping[str, Sequence[str]] | None = None
    new_callbacks: Sequence[callbacks.Callback] = ()
    finished_callbacks: Sequence[int] = ()
    failed_callbacks: Sequence[callbacks.Callback] = ()
    dead_callbacks: Sequence[callbacks.Callback] = ()
    used_keys: Sequence[idempotency.UsedKey] = ()
    new_media: Sequence[media.Media] = ()
    new_downloads: Sequence[media_downloads.Download] = ()
    tried_downloads: Sequence[media_downloads.Download] = ()
    finished_downloads: Sequence[str] = ()
    groups: group_changes.GroupChanges | None = None
    learnt_identities: Sequence[identities.Identity] = ()
    acknowledged_identities: Sequence[tuple[str, bytes]] = ()
    kyber_identities: Sequence[tuple[str, bytes]] = ()
    acknowledges_all: bool = False


class Journal:
    """Commits changes in batches, strictly in order, under one lease."""

    def __init__(
        self,
        database: Database,
        lease: shards.Lease,
        *,
        last_seq: int,
        committed: Callable[[Sequence[callbacks.Callback]], None],
        max_size: int = 500,
    ) -> None:
        """last_seq: the highest callback `seq` in use; committed: told of new callbacks once they are on disk."""
        self._database = database
        self._lease = lease
        self._last_seq = last_seq
        self._committed = committed
        # The loop's time at the begin of the commit in flight.
        self._committing_since = math.inf
        # Done, with the error, from the first failure on.
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._batcher: Batcher[Change, None] = Batcher("journal", self._flush, max_size=max_size, spacing=SPACING)

    @property
    def is_stalled(self) -> bool:
        """Does the commit in flight wait for a database that is away, or hangs?"""
        return asyncio.get_running_loop().time() - self._committing_since > STALL_SECONDS

    def put(self, change: Change, *, urgent: bool = False) -> asyncio.Future[None]:
        """Queue a change; the future is done when it is on disk. It raises `LeaseLost` or the database's error.

        urgent: somebody waits for it, so it does not wait for company.
        """
        return self._batcher.put(change, urgent=urgent)

    async def write(self, change: Change) -> None:
        """Queue a change and wait until it is on disk."""
        await self._batcher.put(change, urgent=True)

    def fail(self, error: BaseException) -> None:
        """Write nothing more: what is in memory can no longer be trusted to be what is on disk."""
        if not self.broken.done():
            self.broken.set_exception(error)
            # Whoever watches the journal sees it; nobody has to.
            self.broken.exception()

    async def close(self) -> None:
        """Commit what is queued."""
        await self._batcher.close()

    async def _flush(self, changes: Sequence[Change]) -> Sequence[None]:
        if self.broken.done():
            self.broken.result()
        batch = _Merged(changes)
        for callback in batch.callbacks:
            callback.seq = self._next_seq()
        tries = 0

        async def work(connection: Connection) -> None:
            nonlocal tries
            tries += 1
            await batch.execute(connection, self._lease)

        self._committing_since = asyncio.get_running_loop().time()
        try:
            await self._database.persist(work, patience=PATIENCE, about=batch.subject)
        except Exception as error:
            self.fail(error)
            if tries > 1:
                # An earlier try may have been committed just before the connection broke.
                raise OutcomeUnknown(repr(error)) from error
            raise
        finally:
            self._committing_since = math.inf
        if batch.callbacks:
            self._committed(batch.callbacks)
        return [None] * len(changes)

    def _next_seq(self) -> int:
        # Microseconds, then 5 bits of shard: grows, and never meets another shard's.
        now = (time.time_ns() // 1000) << 5 | self._lease.shard
        self._last_seq = max(now, (self._last_seq >> 5) + 1 << 5 | self._lease.shard)
        return self._last_seq


# Of those tables of a batch that are not about messages.
_SUBJECTS: Mapping[str, Subject] = {
    **dict.fromkeys(("jobs", "finished_jobs"), "jobs"),
    "contacts": "contacts",
    **dict.fromkeys(("whole", "sending", "dropped", "used_prekeys"), "keys"),
    **dict.fromkeys(("identities", "acknowledged", "kyber", "acknowledges_all"), "keys"),
}


class _Merged:
    """The changes of one batch by table; where one row is written twice, the later write stands."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.messages: list[messages.Message] = []
        self.jobs: dict[str, jobs.Job] = {}
        self.finished_jobs: list[str] = []
        self.statuses: dict[str, messages.Status] = {}
        self.kept: dict[str, bytes] = {}
        self.renamed: dict[str, str] = {}
        self.new_undecrypted: list[undecrypted.Undecrypted] = []
        self.ended_undecrypted: list[str] = []
        self.contacts: dict[tuple[str, str], contacts.Contact] = {}
        self.heard: dict[str, dict[str, int]] = {}
        self.unread: list[service_windows.Unread] = []
        self.read: dict[str, dict[str, list[str]]] = {}
        self.callbacks: list[callbacks.Callback] = []
        self.finished_callbacks: list[int] = []
        self.failed_callbacks: dict[int, callbacks.Callback] = {}
        self.dead_callbacks: list[callbacks.Callback] = []
        self.whole: dict[tuple[str, str], sessions.Session] = {}
        self.sending: dict[tuple[str, str], sessions.SendingHalf] = {}
        self.dropped: dict[str, list[str]] = {}
        self.used_prekeys: dict[str, list[int]] = {}
        self.used_keys: list[idempotency.UsedKey] = []
        self.media: list[media.Media] = []
        self.new_downloads: list[media_downloads.Download] = []
        self.tried_downloads: list[media_downloads.Download] = []
        self.finished_downloads: list[str] = []
        self.groups: list[group_changes.GroupChanges] = []
        self.identities: dict[tuple[str, str], identities.Identity] = {}
        self.acknowledged: dict[tuple[str, str], list[bytes]] = {}
        self.kyber: dict[str, list[tuple[str, bytes]]] = {}
        self.acknowledges_all: set[str] = set()
        for change in changes:
            self._add(change)

    def _add(self, change: Change) -> None:
        self.messages += change.new_messages
        self.used_keys += change.used_keys
        self.media += change.new_media
        self.new_downloads += change.new_downloads
        self.tried_downloads += change.tried_downloads
        self.finished_downloads += change.finished_downloads
        if change.groups is not None:
            self.groups.append(change.groups)
        for identity in change.learnt_identities:
            self.identities[identity.account, identity.peer] = identity
            self.acknowledged.pop((identity.account, identity.peer), None)
        for peer, digest in change.acknowledged_identities:
            self.acknowledged.setdefault((change.account, peer), []).append(digest)
        if change.kyber_identities:
            self.kyber.setdefault(change.account, []).extend(change.kyber_identities)
        if change.acknowledges_all:
            self.acknowledges_all.add(change.account)
            self.identities = {
                key: dataclasses.replace(identity, acknowledged=True) if key[0] == change.account else identity
                for key, identity in self.identities.items()
            }
        for job in change.enqueued_jobs:
            self.jobs[job.id] = job
        self.finished_jobs += change.finished_jobs
        for message_id, status in (change.statuses or {}).items():
            self.statuses[message_id] = max(status, self.statuses.get(message_id, status))
        self.kept.update(change.kept or {})
        self.renamed.update(change.renamed or {})
        self.new_undecrypted += change.new_undecrypted
        self.ended_undecrypted += change.ended_undecrypted
        for contact in change.checked_contacts:
            self.contacts[contact.account, contact.wa_id] = contact
        if change.heard:
            self.heard.setdefault(change.account, {}).update(change.heard)
        self.unread += change.unread_messages
        for peer, ids in (change.read_messages or {}).items():
            self.read.setdefault(change.account, {}).setdefault(peer, []).extend(ids)
        self.callbacks += change.new_callbacks
        # Of one callback a failure always comes before its end, and the end is all that counts.
        for callback in change.failed_callbacks:
            self.failed_callbacks[callback.seq] = callback
        for callback in change.dead_callbacks:
            self.failed_callbacks.pop(callback.seq, None)
            self.dead_callbacks.append(callback)
        for seq in change.finished_callbacks:
            self.failed_callbacks.pop(seq, None)
            self.finished_callbacks.append(seq)
        if change.used_prekeys:
            self.used_prekeys.setdefault(change.account, []).extend(change.used_prekeys)
        for peer in change.dropped_sessions:
            self.whole.pop((change.account, peer), None)
            self.sending.pop((change.account, peer), None)
            self.dropped.setdefault(change.account, []).append(peer)
        for session in change.whole_sessions:
            self.whole[session.account, session.peer] = session
            self.sending.pop((session.account, session.peer), None)
        for half in change.sending_halves:
            key = (half.account, half.peer)
            if key in self.whole:
                self.whole[key] = dataclasses.replace(self.whole[key], sending=half.sending)
            else:
                self.sending[key] = half

    @property
    def subject(self) -> Subject:
        """What the batch is about where that is one thing alone; else messages, which most things are about."""
        found = {_SUBJECTS.get(table, "messages") for table, rows in vars(self).items() if rows}
        return found.pop() if len(found) == 1 else "messages"

    async def _drop_void(self, connection: Connection) -> None:
        """Callbacks about a message of which memory knows no longer whose it is: void unless it is their author's."""
        doubtful = [callback for callback in self.callbacks if callback.author]
        authors: dict[tuple[str, str], str] = {}
        for account in {callback.account for callback in doubtful}:
            asked = [callback.subject for callback in doubtful if callback.account == account]
            for row in await messages.list_progress(connection, account, asked):
                if row.status in (messages.Status.RECEIVED, messages.Status.MARKED_READ):
                    authors[account, row.id] = row.peer
        void = {c.seq for c in doubtful if authors.get((c.account, c.subject)) != c.author}
        if void:
            log.warning("callbacks.not_of_their_author", extra={"count": len(void)})
            self.callbacks = [callback for callback in self.callbacks if callback.seq not in void]

    async def execute(self, connection: Connection, lease: shards.Lease) -> None:
        await shards.fence(connection, lease)
        await messages.add(connection, self.messages)
        await self._drop_void(connection)
        await idempotency.save(connection, self.used_keys)
        await jobs.enqueue(connection, list(self.jobs.values()))
        await jobs.finish(connection, self.finished_jobs)
        for account, peers in self.dropped.items():
            await sessions.delete(connection, account, peers)
        await sessions.save(connection, list(self.whole.values()))
        await sessions.save_sending(connection, list(self.sending.values()))
        for account, key_ids in self.used_prekeys.items():
            await accounts.delete_prekeys(connection, account, accounts.ONE_TIME, key_ids)
        if self.statuses:
            await messages.advance(connection, self.statuses)
        await messages.keep(connection, self.kept)
        await messages.change_kinds(connection, self.renamed)
        await undecrypted.add(connection, self.new_undecrypted)
        await undecrypted.delete(connection, self.ended_undecrypted)
        await contacts.save(connection, list(self.contacts.values()))
        for account, heard in self.heard.items():
            await service_windows.save_heard(connection, account, heard)
        await service_windows.add_unread(connection, self.unread)
        for account, read in self.read.items():
            await service_windows.delete_unread(connection, account, read)
        await media.add_all(connection, self.media)
        await media_downloads.enqueue(connection, self.new_downloads)
        await media_downloads.reschedule(connection, self.tried_downloads)
        await media_downloads.finish(connection, self.finished_downloads)
        if self.groups:
            await group_changes.execute(connection, self.groups)
        # What was learnt after that stands.
        for account in self.acknowledges_all:
            await identities.acknowledge_all(connection, account)
        await identities.save(connection, list(self.identities.values()))
        for (account, peer), digests in self.acknowledged.items():
            await identities.acknowledge(connection, account, [(peer, digest) for digest in digests])
        for account, hashes in self.kyber.items():
            await identities.note_kyber(connection, account, hashes)
        await callbacks.enqueue(connection, [callback for callback in self.callbacks if not callback.volatile])
        await callbacks.finish(connection, self.finished_callbacks)
        await callbacks.reschedule(connection, list(self.failed_callbacks.values()))
        await callbacks.bury(connection, self.dead_callbacks)
