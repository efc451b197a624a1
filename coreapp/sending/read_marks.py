"""Marking of recipients' messages as read, with receipts to their senders: queued like any message, and committed with
the marks.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence

import msgspec

from coreapp.capacity import Admission
from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.journal.change import Change
from coreapp.sending import group_jobs
from coreapp.sending.transmission import Transmitter
from coreapp.statuses.tracker import StatusTracker
from tidings.aio.lru import LRU
from tidings.storage.business import group_messages, messages, service_windows
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.messages import Status
from tidings.wire import codes, core, device, ids
from tidings.wire.ids import MessageIds

MAX_MARKED = 10_000  # messages marked recently that are remembered
MAX_REFS = 100  # messages marked at once; older ones are marked with the next call


@dataclasses.dataclass(eq=False, repr=False)
class ReadMarks:
    """Read marks of one account. An acknowledged mark is on disk, and reaches the sender after any crash."""

    context: ShardContext
    tracker: StatusTracker
    _: dataclasses.KW_ONLY
    admission: Admission
    transmitter: Transmitter

    def __post_init__(self) -> None:
        self._ids = MessageIds()
        # Recently marked messages with their commit, so that a message read as unread just before that commit is not
        # marked twice.
        self._marked: LRU[str, asyncio.Future[None]] = LRU(MAX_MARKED)

    async def mark(self, request: core.MarkRead) -> str:
        """Mark a message and the unread ones before it. Webhooks that we create in the form of messages need no mark.

        Returns the message's sender; empty for such a webhook and for an unread message of a group.

        Raises `RequestRefused` with 1006 if no such message was received, and if a queue is full.
        """
        if ids.is_notice(request.id):
            return ""
        account = self.context.account
        async with self.context.database.reading() as connection:
            found = await messages.list_progress(connection, account, [request.id])
            if not found or found[0].status not in (Status.RECEIVED, Status.MARKED_READ):
                raise RequestRefused(codes.NOT_FOUND, "unknown message")
            peer = found[0].peer
            unread = await service_windows.list_unread(connection, account, peer, request.id, limit=MAX_REFS)
        if not unread:
            return "" if await self._mark_in_group(request) else peer
        fresh = [message_id for message_id in unread if message_id not in self._marked]
        if fresh:
            job = self._job(peer, device.READ, msgspec.json.encode(fresh), request.request_id)
            self._send([job], fresh, Change(account, read_messages={peer: fresh}))
        await self._committed(unread)
        return peer

    async def _mark_in_group(self, request: core.MarkRead) -> bool:
        """Mark a message and the unread ones before it in its group, with a receipt to each author. Returns whether it
        was an unread group message.
        """
        account = self.context.account
        unread = await self.context.database.query(
            lambda connection: group_messages.list_unread(connection, account, request.id, limit=MAX_REFS)
        )
        by_author: dict[tuple[str, str], list[str]] = {}
        for message in unread:
            if message.id not in self._marked:
                by_author.setdefault((message.group_id, message.author), []).append(message.id)
        if by_author:
            jobs = [
                self._job(author, group_jobs.READ, group_jobs.pack_read(group_id, refs), request.request_id)
                for (group_id, author), refs in by_author.items()
            ]
            marked = [message_id for refs in by_author.values() for message_id in refs]
            self._send(jobs, marked, Change(account, groups=GroupChanges(account, read_messages=marked)))
        await self._committed(message.id for message in unread)
        return bool(unread)

    def _job(self, peer: str, kind: str, body: bytes, request_id: str) -> Job:
        context, now = self.context, self.context.now()
        return Job(
            self._ids.new(), context.shard, context.account, peer, JobForm.ENCRYPTED, kind, body, now, request_id
        )

    def _send(self, jobs: Sequence[Job], marked: Sequence[str], change: Change) -> None:
        """Commit the marks with the receipts, then send these. Raises `RequestRefused` when a queue is full.

        marked: ids of the messages
        change: unread marks to delete
        """
        self.admission.check()
        change.enqueued_jobs = jobs
        change.statuses = dict.fromkeys(marked, Status.MARKED_READ)
        committed = self.context.journal.put(change, urgent=True)
        self.context.count.add(len(jobs))
        # Receipts are not messages of the business, so no status is reported for them.
        self.tracker.hold([job.id for job in jobs])
        for message_id in marked:
            self._marked.put(message_id, committed)

        def done(committed: asyncio.Future[None]) -> None:
            if not committed.cancelled() and committed.exception() is None:
                self.transmitter.offer(jobs)

        committed.add_done_callback(done)

    async def _committed(self, ids: Iterable[str]) -> None:
        """Wait until the recent marks of these messages are on disk."""
        for committed in {self._marked.get(message_id) for message_id in ids} - {None}:
            assert committed is not None
            # A caller may be cancelled; the others still wait for the same commit.
            await asyncio.shield(committed)
