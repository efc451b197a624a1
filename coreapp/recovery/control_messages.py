"""Control messages: null messages on new sessions, retry requests, and repeated messages.

They are jobs like others, committed with the deliveries that caused them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.media.preparation_queue import PreparationQueue
from coreapp.sending.encryption import RENEW, Encryption
from coreapp.statuses.tracker import StatusTracker
from tidings.storage.business.jobs import Job, JobForm
from tidings.wire import device, ids


@dataclasses.dataclass(frozen=True, slots=True)
class ControlMessage:
    """One control message."""

    id: str  # id of its envelope
    peer: str
    kind: str  # kind of its job while that is `NEW`
    content: bytes = dataclasses.field(repr=False)
    request_id: str = ""


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class ControlMessages:
    """Sends the control messages of one account."""

    context: ShardContext
    _: dataclasses.KW_ONLY
    encryption: Encryption
    preparation: PreparationQueue
    tracker: StatusTracker

    def jobs(self, messages: Sequence[ControlMessage]) -> Sequence[Job]:
        """Return the jobs to commit. Nothing may run between this call and `post`."""
        now = self.context.now()
        jobs = []
        for message in messages:
            job = Job(
                message.id,
                self.context.shard,
                self.context.account,
                message.peer,
                JobForm.NEW,
                "",
                b"",
                now,
                message.request_id,
            )
            self.encryption.seal_content(job, message.content)
            job.kind = message.kind
            jobs.append(job)
        return jobs

    def post(self, messages: Sequence[ControlMessage], jobs: Sequence[Job]) -> None:
        """Send jobs that are in the journal."""
        self.context.count.add(len(jobs))
        self.tracker.hold([ids.message_of(job.id) for job in jobs])
        for job, message in zip(jobs, messages, strict=True):
            self.enter(job, message.content)

    def enter(self, job: Job, content: bytes) -> None:
        """Start a `NEW` job of any kind that is counted and held."""
        if job.kind == device.RETRY or (job.kind == RENEW and not ids.is_repetition(job.id)):
            self.encryption.enqueue(job, content)
        else:
            self.preparation.resume(job, content)
