"""Read receipts to recipients: queued like any message, and committed with what they mark as read."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from coreapp.capacity import Admission
from coreapp.context import ShardContext
from coreapp.journal import Change
from coreapp.sending.encryption import Outlet
from coreapp.statuses.tracker import StatusTracker
from tidings.runtime.lru import LRU
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.jobs import Job, State
from tidings.storage.business.messages import Status
from tidings.wire.ids import MessageIds

MAX_MARKED = 10_000
MAX_REFS = 100  # messages marked at once; older ones are marked with the next


@dataclasses.dataclass(frozen=True, slots=True)
class Receipt:
    """kind and body: of the job."""

    peer: str
    kind: str
    body: bytes


class ReadReceipts:
    """Those of one account. One that was committed reaches its recipient whatever crashes."""

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
        # Marked lately, with the commit: what was read as unread just before that commit is not marked twice.
        self._marked: LRU[str, asyncio.Future[None]] = LRU(MAX_MARKED)

    def is_marked(self, message_id: str) -> bool:
        """Is this message marked already, or about to be?"""
        return message_id in self._marked

    def send(
        self,
        receipts: Iterable[Receipt],
        marked: Sequence[str],
        request_id: str,
        *,
        read_messages: Mapping[str, Sequence[str]] | None = None,
        groups: GroupChanges | None = None,
    ) -> None:
        """Mark messages as read, and tell their authors; `committed` waits for it.

        read_messages and groups: where they are unread no longer, as of `Change`.

        Raises `Refused` when a queue is full.
        """
        self._admission.check()
        now = int(self._clock.now() * 1000)
        jobs = [
            Job(
                self._ids.new(),
                self._shard,
                self._account,
                receipt.peer,
                State.ENCRYPTED,
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
        # No messages of ours: nothing will be reported of them.
        self._tracker.hold([job.id for job in jobs])
        for message_id in marked:
            self._marked.put(message_id, committed)
        committed.add_done_callback(self._done(jobs))

    async def committed(self, ids: Iterable[str]) -> None:
        """Returns when those of these messages that were marked lately are so on disk."""
        for committed in {self._marked.get(message_id) for message_id in ids} - {None}:
            assert committed is not None
            # Whoever asked may go away; the others still wait for the same commit.
            await asyncio.shield(committed)

    def _done(self, jobs: Sequence[Job]) -> Callable[[asyncio.Future[None]], None]:
        def done(committed: asyncio.Future[None]) -> None:
            if not committed.cancelled() and committed.exception() is None:
                self._outlet.offer(jobs)

        return done
