"""Marking messages of a group as read: a receipt for each author, queued like any message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from coreapp.admission import Admission
from coreapp.encryption import Outlet
from coreapp.groups import outgoing
from coreapp.groups.pairwise import Count
from coreapp.ids import MessageIds
from coreapp.journal import Change, Journal
from coreapp.progress import ProgressBook
from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU
from tidings.storage import group_messages
from tidings.storage.database import Database
from tidings.storage.group_changes import GroupChanges
from tidings.storage.group_messages import Unread
from tidings.storage.jobs import Job, State
from tidings.storage.messages import Status
from tidings.wire import core

MAX_MARKED = 10_000
MAX_REFS = 100  # messages marked at once; older ones are marked with the next


class GroupReadMarks:
    """Those of one account. A mark that was answered is on disk, and reaches the authors whatever crashes."""

    def __init__(
        self,
        database: Database,
        admission: Admission,
        count: Count,
        journal: Journal,
        progress: ProgressBook,
        outlet: Outlet,
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
        self._clock = clock
        self._account = account
        self._shard = shard
        self._ids = MessageIds()
        # Marked lately, with the commit: what was read as unread just before that commit is not marked twice.
        self._marked: LRU[str, asyncio.Future[None]] = LRU(MAX_MARKED)

    async def mark(self, question: core.MarkRead) -> None:
        """Mark a message and the unread ones before it in its group, if it is an unread one of a group.

        Raises `Refused` when a queue is full.
        """
        unread = await self._database.query(
            lambda connection: group_messages.list_unread(connection, self._account, question.id, limit=MAX_REFS)
        )
        fresh = [message for message in unread if message.id not in self._marked]
        if fresh:
            self._admission.check()
            self._send(fresh, question.request_id)
        commits = {self._marked.get(message.id) for message in unread} - {None}
        for committed in commits:
            assert committed is not None
            # Whoever asked may go away; the others still wait for the same commit.
            await asyncio.shield(committed)

    def _send(self, unread: Sequence[Unread], request_id: str) -> None:
        by_author: dict[tuple[str, str], list[str]] = {}
        for message in unread:
            by_author.setdefault((message.group_id, message.author), []).append(message.id)
        now = int(self._clock.now() * 1000)
        jobs = []
        for (group_id, author), ids in by_author.items():
            body = outgoing.pack_read(group_id, ids)
            jobs.append(
                Job(
                    self._ids.new(),
                    self._shard,
                    self._account,
                    author,
                    State.ENCRYPTED,
                    outgoing.READ,
                    body,
                    now,
                    request_id,
                )
            )
        marked = [message.id for message in unread]
        committed = self._journal.put(
            Change(
                self._account,
                enqueued_jobs=jobs,
                statuses=dict.fromkeys(marked, Status.MARKED_READ),
                groups=GroupChanges(self._account, read_messages=marked),
            ),
            urgent=True,
        )
        self._count.add(len(jobs))
        # No messages of ours: nothing will be reported of them.
        self._progress.hold([job.id for job in jobs])
        for message_id in marked:
            self._marked.put(message_id, committed)
        committed.add_done_callback(self._done(jobs))

    def _done(self, jobs: Sequence[Job]) -> Callable[[asyncio.Future[None]], None]:
        def done(committed: asyncio.Future[None]) -> None:
            if not committed.cancelled() and committed.exception() is None:
                self._outlet.offer(jobs)

        return done
