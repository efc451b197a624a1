"""Marking messages of recipients as read: a receipt for their sender, queued like any message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from coreapp import codes
from coreapp.admission import Admission
from coreapp.encryption import Outlet
from coreapp.errors import Refused
from coreapp.ids import MessageIds
from coreapp.journal import Change, Journal
from coreapp.progress import ProgressBook
from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU
from tidings.storage import messages, threads
from tidings.storage.database import Database
from tidings.storage.jobs import Job, State
from tidings.storage.messages import Status
from tidings.wire import core
from tidings.wire import device as frames

MAX_MARKED = 10_000
MAX_REFS = 100  # messages in one receipt; older ones are marked with the next


class Count(Protocol):
    """The jobs in the queue."""

    def add(self, count: int) -> None: ...


class GroupMarks(Protocol):
    """Marks messages of groups."""

    async def mark(self, question: core.MarkRead) -> None: ...


class ReadMarks:
    """Those of one account. A mark that was answered is on disk, and reaches the sender whatever crashes."""

    def __init__(
        self,
        database: Database,
        admission: Admission,
        count: Count,
        journal: Journal,
        progress: ProgressBook,
        outlet: Outlet,
        groups: GroupMarks,
        clock: Clock,
        *,
        account: str,
        shard: int,
    ) -> None:
        self._database = database
        self._admission = admission
        self._count = count
        self._journal = journal
        self._progress = progress
        self._outlet = outlet
        self._groups = groups
        self._clock = clock
        self._account = account
        self._shard = shard
        self._ids = MessageIds()
        # Marked lately, with the commit: what was read as unread just before that commit is not marked twice.
        self._marked: LRU[str, asyncio.Future[None]] = LRU(MAX_MARKED)

    async def mark(self, question: core.MarkRead) -> None:
        """Mark a message and the unread ones before it. Raises `Refused` with 1006 when nobody sent us such a one."""
        async with self._database.reading() as connection:
            found = await messages.list_progress(connection, self._account, [question.id])
            if not found or found[0].status not in (Status.RECEIVED, Status.MARKED_READ):
                raise Refused(codes.NOT_FOUND, "unknown message")
            peer = found[0].peer
            unread = await threads.list_unread(connection, self._account, peer, question.id, limit=MAX_REFS)
        ids = [message_id for message_id in unread if message_id not in self._marked]
        if ids:
            self._admission.check()
            self._send(peer, ids, question.request_id)
        commits = {self._marked.get(message_id) for message_id in unread} - {None}
        if not unread:
            await self._groups.mark(question)
        for committed in commits:
            assert committed is not None
            # Whoever asked may go away; the others still wait for the same commit.
            await asyncio.shield(committed)

    def _send(self, peer: str, ids: Sequence[str], request_id: str) -> None:
        receipt = self._ids.new()
        now = int(self._clock.now() * 1000)
        body = msgspec.json.encode(ids)
        job = Job(receipt, self._shard, self._account, peer, State.ENCRYPTED, frames.READ, body, now, request_id)
        committed = self._journal.put(
            Change(
                self._account,
                enqueued_jobs=(job,),
                statuses=dict.fromkeys(ids, Status.MARKED_READ),
                read_messages={peer: ids},
            ),
            urgent=True,
        )
        self._count.add(1)
        # No message of ours: nothing will be reported of it.
        self._progress.hold((receipt,))
        for message_id in ids:
            self._marked.put(message_id, committed)
        committed.add_done_callback(self._done(job))

    def _done(self, job: Job) -> Callable[[asyncio.Future[None]], None]:
        def done(committed: asyncio.Future[None]) -> None:
            if not committed.cancelled() and committed.exception() is None:
                self._outlet.offer((job,))

        return done
