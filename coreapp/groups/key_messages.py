"""Messages between devices, sent in ordinary sessions: sender keys and requests for them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.groups.cross_shard import CrossShardMessages, SentElsewhere
from coreapp.journal import Change
from coreapp.sending.wiring import Sending
from coreapp.statuses.tracker import StatusTracker
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.sessions import SealedSendingHalf
from tidings.wire.ids import MessageIds


@dataclasses.dataclass(slots=True)
class KeyMessage:
    """One message between devices."""

    job: Job
    content: bytes
    half: SealedSendingHalf | None  # session half to commit; None while it is not encrypted
    elsewhere: bool = False  # whether another shard sends it


class KeyMessages:
    """Sends such messages for one account. They are jobs like others, but not messages of the business: no status is
    reported.
    """

    def __init__(
        self,
        context: ShardContext,
        sending: Sending,
        tracker: StatusTracker,
        *,
        notes: CrossShardMessages,
        sent_elsewhere: SentElsewhere,
    ) -> None:
        self._owns = context.owns
        self._wakeups = context.shared.wakeups
        self._notes = notes
        self._sent_elsewhere = sent_elsewhere
        self._journal = context.journal
        self._count = context.count
        self._clock = context.clock
        self._account = context.account
        self._shard = context.shard
        self._encryption = sending.encryption
        self._transmitter = sending.transmitter
        self._tracker = tracker
        self._ids = MessageIds()

    def write(self, peer: str, content: bytes) -> KeyMessage:
        """Return a message, encrypted if the session is in memory. Nothing may run between this call and `post`."""
        now = int(self._clock.now() * 1000)
        job = Job(self._ids.new(), self._shard, self._account, peer, JobForm.NEW, "", b"", now)
        if not self._owns(peer):
            return KeyMessage(job, content, None, elsewhere=True)
        half = self._encryption.encrypt_now(job, content)
        if half is None:
            self._encryption.seal_content(job, content)
        return KeyMessage(job, content, half)

    def post(self, messages: Sequence[KeyMessage], groups: GroupChanges | None = None) -> asyncio.Future[None]:
        """Commit messages to different peers together with `groups`, and send them. The future completes when they are
        on disk.
        """
        here = [message for message in messages if not message.elsewhere]
        notes = [self._notes.to_send(message.job, message.content) for message in messages if message.elsewhere]
        if notes:
            groups = dataclasses.replace(groups or GroupChanges(self._account), notes=notes)
        committed = self._journal.put(
            Change(
                self._account,
                enqueued_jobs=[message.job for message in here],
                sending_halves=[message.half for message in here if message.half is not None],
                groups=groups,
            ),
            urgent=True,
        )
        self._count.add(len(here))
        self._tracker.hold([message.job.id for message in here])
        encrypted = []
        for message in here:
            if message.half is None:
                self._encryption.enqueue(message.job, message.content)
            else:
                self._encryption.hold(message.job.peer, committed)
                encrypted.append(message.job)

        def done(future: asyncio.Future[None]) -> None:
            if future.cancelled() or future.exception() is not None:
                return
            if encrypted:
                self._transmitter.offer(encrypted)
            if notes:
                self._sent_elsewhere.watch(note.id for note in notes)
                for shard in {note.shard for note in notes}:
                    self._wakeups.wake(shard)

        committed.add_done_callback(done)
        return committed
