"""Groups are the first shard's; sessions with their participants are of the shard of each. What one needs of another
goes as a note through the database: a key to be sent, a key that came, a participant who lacks ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from coreapp.context import ShardContext
from coreapp.journal import Change
from coreapp.sending.encryption import Encryption
from coreapp.statuses.tracker import StatusTracker
from tidings import e2ee
from tidings.runtime import service
from tidings.storage import outages
from tidings.storage.business import jobs, shard_notes
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.jobs import Job, State
from tidings.storage.business.shard_notes import Note
from tidings.storage.database import Connection
from tidings.wire.addresses import shard_of
from tidings.wire.device import Deliver
from tidings.wire.ids import MessageIds

log = logging.getLogger(__name__)

FIRST = 0
# Kinds of notes. To a participant's shard: send this. To the first one: a key came, ours is asked for, ours is lost.
SEND, KEY, ASKED, LOST = shard_notes.SEND, "key", "asked", "lost"
FOR_FIRST = (KEY, ASKED, LOST)

PAGE = 500
RETRY_SECONDS = 1.0
LOOK_SECONDS = 0.1  # between two looks whether what others send for us is sent


class Notes:
    """Makes the notes of one shard, sealed as the contents of messages are."""

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._ids = MessageIds()

    def to_first(self, kind: str, peer: str, group_id: str = "", body: bytes = b"") -> Note:
        """What the owner of the groups has to know of a participant."""
        note_id = self._ids.new()
        return self._make(note_id, FIRST, kind, peer, group_id=group_id, body=body)

    def to_send(self, job: Job, content: bytes) -> Note:
        """A content for a participant; the job is called as the note is."""
        return self._make(job.id, shard_of(job.peer, self._context.lease.shards), SEND, job.peer, body=content)

    def open(self, note: Note) -> bytes:
        """What `to_first` or `to_send` was given. Raises `e2ee.CorruptState`."""
        return self._context.device.sealer.open(note.body, (note.account, note.peer, "shard_note", note.id))

    def _make(self, note_id: str, shard: int, kind: str, peer: str, *, group_id: str = "", body: bytes) -> Note:
        account, now = self._context.account, int(self._context.clock.now() * 1000)
        sealed = self._context.device.sealer.seal(body, context=(account, peer, "shard_note", note_id))
        return Note(note_id, shard, account, kind, peer, group_id, sealed, now)


class Inbox(Protocol):
    """Who takes what is for the first shard, in one line with what arrives from groups."""

    def note(self, delivery: Deliver) -> asyncio.Future[None]: ...


class NoteReader:
    """A service: does what other shards have left for this one."""

    name = "shard-notes"

    def __init__(
        self, context: ShardContext, notes: Notes, encryption: Encryption, *, tracker: StatusTracker, inbox: Inbox
    ) -> None:
        self._context = context
        self._notes = notes
        self._encryption = encryption
        self._tracker = tracker
        self._inbox = inbox
        # Those that were read, and whose end is not on disk.
        self._in_hand: set[str] = set()

    async def run(self, stop: asyncio.Event) -> None:
        bell = self._context.shared.bells.of(self._context.shard)
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: bell.kick())
        try:
            while not stop.is_set():
                seconds = None
                looking = asyncio.create_task(self.run_once(), name="notes")
                await asyncio.wait([looking, stopping], return_when=asyncio.FIRST_COMPLETED)
                if not looking.done():
                    # A database that is away is not waited for; nothing has been begun before it answers.
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
                await bell.wait(seconds)
        finally:
            stopping.cancel()
            # The next owner of the shard reads what is left.
            bell.kick()

    async def run_once(self) -> None:
        """Read what there is, and begin to do it."""
        shard = self._context.shard
        page = await self._context.database.query(
            lambda connection: shard_notes.list_notes(connection, shard, limit=PAGE + len(self._in_hand))
        )
        fresh = [note for note in page if note.id not in self._in_hand]
        for note in fresh:
            self._in_hand.add(note.id)
            try:
                body = self._notes.open(note)
            except e2ee.CorruptState:
                log.exception("shard_notes.corrupt", extra={"id": note.id})
                done = self._journal(GroupChanges(note.account, ended_notes=(note.id,)))
            else:
                done = self._send(note, body) if note.kind == SEND else self._inbox.note(_as_delivery(note, body))
            done.add_done_callback(lambda _, note_id=note.id: self._in_hand.discard(note_id))  # type: ignore[misc]
        if len(page) >= PAGE + len(self._in_hand) - len(fresh):
            self._context.shared.bells.ring(shard)

    def _send(self, note: Note, content: bytes) -> asyncio.Future[None]:
        context = self._context
        job = Job(note.id, context.shard, note.account, note.peer, State.NEW, "", b"", note.created_at)
        self._encryption.seal_content(job, content)
        committed = self._journal(GroupChanges(note.account, ended_notes=(note.id,)), [job])
        context.count.add(1)
        self._tracker.hold([job.id])
        self._encryption.enqueue(job, content)
        return committed

    def _journal(self, groups: GroupChanges, jobs: Sequence[Job] = ()) -> asyncio.Future[None]:
        return self._context.journal.put(Change(self._context.account, enqueued_jobs=jobs, groups=groups), urgent=True)


class Finished(Protocol):
    """Who has to know what was sent."""

    def finished(self, ids: Sequence[str]) -> None: ...


class SentElsewhere:
    """What other shards send for the first one, until it has left their queues. Looked at in the tables, so that it is
    known whatever becomes of their owners."""

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._waiting: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._listener: Finished | None = None

    def tell(self, listener: Finished) -> None:
        """Say who hears of it."""
        self._listener = listener

    def watch(self, ids: Iterable[str]) -> None:
        """These were left for other shards to send; it is on disk."""
        self._waiting.update(ids)
        if self._waiting and self._task is None and not self._closing.is_set():
            self._task = asyncio.create_task(self._look(), name="sent elsewhere")
            self._task.add_done_callback(self._ended)

    async def still_there(self, ids: Collection[str]) -> set[str]:
        """Those of these that are to be sent yet."""
        return await self._context.database.query(lambda connection: _still_there(connection, ids))

    async def close(self) -> None:
        """Leave it to the next owner."""
        self._closing.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look(self) -> None:
        while self._waiting and not await service.wait_for(self._closing, LOOK_SECONDS):
            left = await self.still_there(list(self._waiting))
            gone = self._waiting - left
            # What came to be watched while we looked is not in the answer.
            self._waiting -= gone
            if gone and self._listener is not None:
                self._listener.finished(sorted(gone))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._context.journal.fail(error)
        else:
            # Something may have come after the last look, and before this was called.
            self.watch(())


async def _still_there(connection: Connection, ids: Collection[str]) -> set[str]:
    # A note becomes a job: in this order none is missed.
    return {*await shard_notes.list_ids(connection, ids), *await jobs.list_ids(connection, ids)}


def _as_delivery(note: Note, body: bytes) -> Deliver:
    """So that it is handled in turn with what the network delivers; nobody acknowledges it."""
    return Deliver(0, note.account, note.peer, note.id, note.kind, note.created_at, body, group=note.group_id)
