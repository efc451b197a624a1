"""Messages between devices, sent in ordinary sessions: sender keys and requests for them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.groups.cross_shard import CrossShardMessages, SentElsewhere
from coreapp.journal.change import Change
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


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class KeyMessages:
    """Sends such messages for one account. They are jobs like others, but not messages of the business: no status is
    reported.
    """

    context: ShardContext
    sending: Sending
    tracker: StatusTracker
    _: dataclasses.KW_ONLY
    notes: CrossShardMessages
    sent_elsewhere: SentElsewhere
    _ids: MessageIds = dataclasses.field(default_factory=MessageIds, init=False)

    def write(self, peer: str, content: bytes) -> KeyMessage:
        """Return a message, encrypted if the session is in memory. Nothing may run between this call and `post`."""
        now = self.context.now()
        job = Job(self._ids.new(), self.context.shard, self.context.account, peer, JobForm.NEW, "", b"", now)
        if not self.context.owns(peer):
            return KeyMessage(job, content, None, elsewhere=True)
        half = self.sending.encryption.encrypt_now(job, content)
        if half is None:
            self.sending.encryption.seal_content(job, content)
        return KeyMessage(job, content, half)

    def post(self, messages: Sequence[KeyMessage], groups: GroupChanges | None = None) -> asyncio.Future[None]:
        """Commit messages to different peers together with `groups`, and send them. The future completes when they are
        on disk.
        """
        here = [message for message in messages if not message.elsewhere]
        notes = [self.notes.to_send(message.job, message.content) for message in messages if message.elsewhere]
        if notes:
            groups = dataclasses.replace(groups or GroupChanges(self.context.account), notes=notes)
        committed = self.context.journal.put(
            Change(
                self.context.account,
                enqueued_jobs=[message.job for message in here],
                sending_halves=[message.half for message in here if message.half is not None],
                groups=groups,
            ),
            urgent=True,
        )
        self.context.count.add(len(here))
        self.tracker.hold([message.job.id for message in here])
        encrypted = []
        for message in here:
            if message.half is None:
                self.sending.encryption.enqueue(message.job, message.content)
            else:
                self.sending.encryption.hold(message.job.peer, committed)
                encrypted.append(message.job)

        def done(future: asyncio.Future[None]) -> None:
            if future.cancelled() or future.exception() is not None:
                return
            if encrypted:
                self.sending.transmitter.offer(encrypted)
            if notes:
                self.sent_elsewhere.watch(note.id for note in notes)
                for shard in {note.shard for note in notes}:
                    self.context.shared.wakeups.wake(shard)

        committed.add_done_callback(done)
        return committed
