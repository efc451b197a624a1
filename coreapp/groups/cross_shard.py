"""Cross-shard messages about groups. The first shard has the groups; the session with each participant belongs to the
participant's shard.

These messages go through the database: a key to send, a key that was received, a participant who lacks ours.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from coreapp import partitions
from coreapp.context import ShardContext
from coreapp.journal.change import Change
from coreapp.sending.encryption import Encryption
from coreapp.statuses.tracker import StatusTracker
from tidings import e2ee
from tidings.aio import service
from tidings.storage import outages
from tidings.storage.business import cross_shard_messages, jobs
from tidings.storage.business.cross_shard_messages import CrossShardMessage
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.database import Connection
from tidings.wire.device import Deliver
from tidings.wire.ids import MessageIds

log = logging.getLogger(__name__)

# Kinds. To a participant's shard: send this. To the first shard: a key was received, ours is requested, ours is lost.
SEND, KEY, REQUESTED, LOST = cross_shard_messages.SEND, "key", "asked", "lost"
FOR_FIRST = (KEY, REQUESTED, LOST)

PAGE = 500  # rows per read
RETRY_SECONDS = 1.0  # seconds until the next read after a failed one
POLL_SECONDS = 0.1  # seconds between two polls for jobs that other shards send for this one


class CrossShardMessages:
    """Creates the cross-shard messages of one shard, sealed like the contents of messages."""

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._ids = MessageIds()

    def to_first(self, kind: str, peer: str, group_id: str = "", body: bytes = b"") -> CrossShardMessage:
        """Return a message about a participant to the owner of the groups."""
        note_id = self._ids.new()
        return self._make(note_id, self._context.lease.first_shard, kind, peer, group_id=group_id, body=body)

    def to_send(self, job: Job, content: bytes) -> CrossShardMessage:
        """Return a message that has a participant's shard send a content. It has the id of the job."""
        return self._make(job.id, partitions.shard_of(self._context.lease, job.peer), SEND, job.peer, body=content)

    def open(self, note: CrossShardMessage) -> bytes:
        """Return the content of a cross-shard message. Raises `e2ee.CorruptState`."""
        return self._context.device.sealer.open(note.body, (note.account, note.peer, "shard_note", note.id))

    def _make(
        self, note_id: str, shard: int, kind: str, peer: str, *, group_id: str = "", body: bytes
    ) -> CrossShardMessage:
        account, now = self._context.account, self._context.clock.now_ms()
        sealed = self._context.device.sealer.seal(body, context=(account, peer, "shard_note", note_id))
        return CrossShardMessage(note_id, shard, account, kind, peer, group_id, sealed, now)


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class CrossShardReader:
    """Service that handles the messages from other shards."""

    name = "shard-notes"

    context: ShardContext
    notes: CrossShardMessages
    encryption: Encryption
    _: dataclasses.KW_ONLY
    tracker: StatusTracker
    handle: Callable[[Deliver], asyncio.Future[None]]  # handles messages for the first shard in order with deliveries
    # Messages that were read and whose end is not on disk.
    _in_progress: set[str] = dataclasses.field(default_factory=set, init=False)

    async def run(self, stop: asyncio.Event) -> None:
        wakeup = self.context.shared.wakeups.of(self.context.shard)
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: wakeup.wake())
        try:
            while not stop.is_set():
                seconds = None
                looking = asyncio.create_task(self.run_once(), name="notes")
                await asyncio.wait([looking, stopping], return_when=asyncio.FIRST_COMPLETED)
                if not looking.done():
                    # Stopping does not wait for an unreachable database: nothing is started before it responds.
                    looking.cancel()
                    await asyncio.gather(looking, return_exceptions=True)
                    break
                try:
                    looking.result()
                except Exception as error:
                    if not outages.is_outage(error):
                        raise
                    log.warning("shard_notes.unreadable", extra={"error": repr(error)})
                    seconds = RETRY_SECONDS
                await wakeup.wait(seconds)
        finally:
            stopping.cancel()
            # The next owner of the shard reads the remaining messages.
            wakeup.wake()

    async def run_once(self) -> None:
        """Read the pending messages and start handling them."""
        shard, before = self.context.shard, set(self._in_progress)
        page = await self.context.database.query(
            lambda connection: cross_shard_messages.list_messages(
                connection, shard, limit=PAGE + len(self._in_progress)
            )
        )
        # Those whose end was committed during the read may still be on the page.
        fresh = [note for note in page if note.id not in before and note.id not in self._in_progress]
        for note in fresh:
            self._in_progress.add(note.id)
            try:
                body = self.notes.open(note)
            except e2ee.CorruptState:
                log.exception("shard_notes.corrupt", extra={"id": note.id})
                done = self._journal(GroupChanges(note.account, ended_notes=(note.id,)))
            else:
                done = self._send(note, body) if note.kind == SEND else self.handle(_as_delivery(note, body))
            done.add_done_callback(lambda _, note_id=note.id: self._in_progress.discard(note_id))  # type: ignore[misc]
        if len(page) >= PAGE + len(self._in_progress) - len(fresh):
            self.context.shared.wakeups.wake(shard)

    def _send(self, note: CrossShardMessage, content: bytes) -> asyncio.Future[None]:
        context = self.context
        job = Job(note.id, context.shard, note.account, note.peer, JobForm.NEW, "", b"", note.created_at)
        self.encryption.seal_content(job, content)
        committed = self._journal(GroupChanges(note.account, ended_notes=(note.id,)), [job])
        context.count.add(1)
        self.tracker.hold([job.id])
        self.encryption.enqueue(job, content)
        return committed

    def _journal(self, groups: GroupChanges, jobs: Sequence[Job] = ()) -> asyncio.Future[None]:
        return self.context.journal.put(Change(self.context.account, enqueued_jobs=jobs, groups=groups), urgent=True)


class SentElsewhere:
    """Jobs that other shards send for the first one, until they have left their queues. Polled in the tables, so that
    crashes of their owners do not matter.
    """

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._waiting: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.on_finished: Callable[[Sequence[str]], None] | None = None  # called with the ids of sent jobs

    def watch(self, ids: Iterable[str]) -> None:
        """Watch jobs that were left for other shards. They are on disk."""
        self._waiting.update(ids)
        if self._waiting and self._task is None and not self._closing.is_set():
            self._task = asyncio.create_task(self._poll(), name="sent elsewhere")
            self._task.add_done_callback(self._ended)

    async def list_unsent(self, ids: Collection[str]) -> set[str]:
        """Return the ids of those of these jobs that are not sent yet."""
        return await self._context.database.query(lambda connection: _list_unsent(connection, ids))

    async def close(self) -> None:
        """Stop polling; the next owner continues."""
        self._closing.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _poll(self) -> None:
        while self._waiting and not await service.wait_for(self._closing, POLL_SECONDS):
            left = await self.list_unsent(list(self._waiting))
            gone = self._waiting - left
            # Jobs added during the read are not in its result.
            self._waiting -= gone
            if gone and self.on_finished is not None:
                self.on_finished(sorted(gone))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._context.journal.fail(error)
        else:
            # A job may have been added after the last poll and before this call.
            self.watch(())


async def _list_unsent(connection: Connection, ids: Collection[str]) -> set[str]:
    # A message becomes a job, so this order of the reads misses none.
    return {*await cross_shard_messages.list_ids(connection, ids), *await jobs.list_ids(connection, ids)}


def _as_delivery(note: CrossShardMessage, body: bytes) -> Deliver:
    """Return the message as a delivery, so that it is handled in order with those of the network. It is never
    acknowledged.
    """
    return Deliver(0, note.account, note.peer, note.id, note.kind, note.created_at, body, group=note.group_id)
