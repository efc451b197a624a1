"""Read receipts to recipients: queued like any message, and committed with the marks."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from coreapp.capacity import Admission
from coreapp.context import ShardContext
from coreapp.journal import Change
from coreapp.sending.encryption import Outlet
from coreapp.statuses.tracker import StatusTracker
from tidings.aio.lru import LRU
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.messages import Status
from tidings.wire.ids import MessageIds

MAX_MARKED = 10_000  # messages marked recently that are remembered
MAX_REFS = 100  # messages marked at once; older ones are marked with the next call


@dataclasses.dataclass(frozen=True, slots=True)
class ReadReceipt:
    """A receipt to one recipient."""

    peer: str
    kind: str  # kind of the job
    body: bytes  # body of the job


class ReadReceipts:
    """Read receipts of one account. A committed receipt reaches its recipient after any crash."""

    def __init__(
        self,
        context: ShardContext,
        tracker: StatusTracker,
        *,
        admission: Admission,
        outlet: Outlet,
    ) -> None:
        self._count = context.count
        self._journal = context.journal
        self._clock = context.clock
        self._account = context.account
        self._shard = context.shard
        self._tracker = tracker
        self._admission = admission
        self._outlet = outlet
        self._ids = MessageIds()
        # Recently marked messages with their commit, so that a message read as unread just before that commit is not
        # marked twice.
        self._marked: LRU[str, asyncio.Future[None]] = LRU(MAX_MARKED)

    def is_marked(self, message_id: str) -> bool:
        """Return whether this message is marked, on disk or in the journal."""
        return message_id in self._marked

    def send(
        self,
        receipts: Iterable[ReadReceipt],
        marked: Sequence[str],
        request_id: str,
        *,
        read_messages: Mapping[str, Sequence[str]] | None = None,
        groups: GroupChanges | None = None,
    ) -> None:
        """Mark messages as read and send receipts to their authors; `committed` waits for it. Raises `RequestRefused`
        when a queue is full.

        marked: ids of the messages
        read_messages, groups: unread marks to delete, as in `Change`
        """
        self._admission.check()
        now = int(self._clock.now() * 1000)
        jobs = [
            Job(
                self._ids.new(),
                self._shard,
                self._account,
                receipt.peer,
                JobForm.ENCRYPTED,
                receipt.kind,
                receipt.body,
                now,
                request_id,
            )
            for receipt in receipts
        ]
        committed = self._journal.put(
            Change(
                self._account,
                enqueued_jobs=jobs,
                statuses=dict.fromkeys(marked, Status.MARKED_READ),
                read_messages=read_messages,
                groups=groups,
            ),
            urgent=True,
        )
        self._count.add(len(jobs))
        # Receipts are not messages of the business, so no status is reported for them.
        self._tracker.hold([job.id for job in jobs])
        for message_id in marked:
            self._marked.put(message_id, committed)
        committed.add_done_callback(self._done(jobs))

    async def committed(self, ids: Iterable[str]) -> None:
        """Wait until the recent marks of these messages are on disk."""
        for committed in {self._marked.get(message_id) for message_id in ids} - {None}:
            assert committed is not None
            # A caller may be cancelled; the others still wait for the same commit.
            await asyncio.shield(committed)

    def _done(self, jobs: Sequence[Job]) -> Callable[[asyncio.Future[None]], None]:
        def done(committed: asyncio.Future[None]) -> None:
            if not committed.cancelled() and committed.exception() is None:
                self._outlet.offer(jobs)

        return done
