"""Sending of encrypted jobs to the network within a window, and recording of the outcomes.

A job is sent only once its ciphertext is on disk, always with the same bytes, and again after every reconnect until the
network accepts or refuses it. The network drops duplicates.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.journal.change import Change
from coreapp.sending import failures, group_jobs
from coreapp.sending.backlog import Backlog
from coreapp.sending.deadlines import JobDeadlines
from coreapp.sending.failures import JobFailures
from coreapp.statuses.reports import Reached, StatusRows
from coreapp.statuses.wiring import Statuses
from tidings.aio import crashpoints
from tidings.observability import tracing
from tidings.observability.tracing import Kind, Span
from tidings.storage.business.callback_history import EndedAttempt
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.jobs import Job
from tidings.storage.business.messages import Status
from tidings.storage.business.quarantine import ItemKind
from tidings.wire import codes, device, ids

log = logging.getLogger(__name__)

SENT = Counter("tidings_messages_sent_total", "Envelopes acknowledged or refused by the network", ["result"])

_decode_refs = msgspec.json.Decoder(list[str]).decode

WINDOW, WINDOW_BYTES = 2000, 4 * 1024 * 1024  # unacknowledged jobs, and their bytes
RETRY_SECONDS = 1.0  # seconds until refused jobs are resent after an overload of the network

FAILURES = {
    device.NO_SUCH_NUMBER: (codes.INVALID_USER, "the recipient is no longer on the network"),
    device.NO_SUCH_GROUP: (codes.GROUP_MISSING, "the group no longer exists"),
    device.NOT_PARTICIPANT: (codes.GROUP_MISSING, "the business is no longer a participant of the group"),
    device.BLOCKED: (codes.RECIPIENT_BLOCKED, "the recipient has blocked this business"),
}
CHANGED = (codes.USER_CHANGED, "the recipient has registered again before this was sent: send it again")


class GroupJobs(Protocol):
    """Encryption of group messages."""

    def enqueue(self, job: Job, content: bytes) -> None:
        """Queue a job to be encrypted."""
        ...

    def returned(self, job: Job) -> None:
        """Encrypt a message again, because its group has changed."""
        ...

    def finished(self, ids: Sequence[str]) -> None:
        """Called when these jobs have left the queue; the deletion is in the journal."""
        ...


@dataclasses.dataclass(eq=False, repr=False)
class Transmitter:
    """Encrypted jobs of one shard, from commit to acceptance.

    At most `WINDOW` jobs and `WINDOW_BYTES` bytes are unacknowledged. While the network is overloaded all jobs wait.
    Refused jobs are resent first, so that messages to one peer keep their order, except relative to those that were in
    flight at the refusal.
    When the network accepts no more for one peer, its jobs wait in the connection outside of the window, and no other
    peer is delayed. Jobs of an earlier owner are sent at the backlog's rate.
    """

    context: ShardContext
    statuses: Statuses
    _: dataclasses.KW_ONLY
    failures: JobFailures

    def __post_init__(self) -> None:
        self.deadlines = JobDeadlines(self.context.clock)
        # Set before the first job of a group is offered.
        self.groups: GroupJobs | None = None
        self._waiting: collections.deque[Job] = collections.deque()
        # Jobs of an earlier owner, and later ones to the same peers.
        self._backlog = Backlog(self._release, lambda: self.context.network_connection.connected)
        self._unacknowledged: dict[str, Job] = {}
        self._unacknowledged_bytes = 0
        # Refused as overloaded; they keep their slot in the window until they are sent again.
        self._refused: set[str] = set()
        # Jobs of peers for which the network accepts no more for now.
        self._held_back: set[str] = set()
        self._pumping = False
        # Jobs that an earlier owner may have sent, with unknown outcome.
        self._inherited: set[str] = set()
        self._accepted = SENT.labels("accepted")
        # Jobs that were acknowledged, refused or withdrawn.
        self.left = 0
        # Spans of traced jobs that were sent and are unacknowledged.
        self._spans: dict[str, Span] = {}

    @property
    def unacknowledged(self) -> int:
        """Jobs that were sent and are unacknowledged."""
        return len(self._unacknowledged)

    @property
    def waiting(self) -> int:
        """Encrypted jobs that are unacknowledged or not sent yet."""
        return len(self._backlog) + len(self._waiting) + len(self._unacknowledged)

    @property
    def kept_back(self) -> int:
        """Unacknowledged jobs to recipients for which the network accepts no more for now."""
        return len(self._held_back)

    @property
    def oldest(self) -> int | None:
        """Acceptance time of the oldest waiting job, Unix milliseconds; None without jobs."""
        waiting = self._waiting[0] if self._waiting else None
        first = (next(iter(self._unacknowledged.values()), None), waiting, self._backlog.first)
        return min((job.created_at for job in first if job is not None), default=None)

    def offer(self, jobs: Sequence[Job], *, inherited: bool = False) -> None:
        """Queue jobs whose ciphertext is on disk, in the order of delivery.

        inherited: whether an earlier owner may have sent them
        """
        if inherited:
            self._inherited.update(job.id for job in jobs)
            self._backlog.add(jobs)
            return
        if len(self._backlog):
            self._backlog.add([job for job in jobs if self._backlog.holds(job.peer)])
            jobs = [job for job in jobs if not self._backlog.holds(job.peer)]
        self._release(jobs)

    def _release(self, jobs: Sequence[Job]) -> None:
        self._waiting.extend(jobs)
        self._pump()

    def connected(self) -> None:
        """Resend all unacknowledged jobs after a login, then continue with the queue."""
        self._refused.clear()
        self._unacknowledged_bytes = sum(len(job.body) for job in self._unacknowledged.values())
        self._held_back.clear()
        if self._unacknowledged:
            self.failures.note(self._unacknowledged, failures.UNACKNOWLEDGED)
        self._resend(list(self._unacknowledged.values()))
        self._backlog.start()

    def accepted(self, envelope_ids: Sequence[str]) -> None:
        """End jobs that the network has stored; their messages get the status sent."""
        done = [job for envelope_id in envelope_ids if (job := self._acknowledged(envelope_id)) is not None]
        if done:
            crashpoints.reach(crashpoints.AFTER_SEND_BEFORE_MARK)
            if log.isEnabledFor(logging.DEBUG):
                for job in done:
                    log.debug("message.sent", extra={"id": job.id, "to": job.peer, "request_id": job.request_id})
            self._post_and_end(done)
            self._accepted.inc(len(done))
        self._pump()

    def refused(self, envelope_id: str, reason: str, detail: str) -> None:
        """Handle a refusal: retry a job if the network is overloaded, otherwise end it."""
        if envelope_id not in self._unacknowledged:
            return
        SENT.labels(reason).inc()
        if reason == device.OVERLOADED:
            self.failures.note((envelope_id,), failures.OVERLOADED)
            if not self._refused:
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._resend_refused)
            self._refused.add(envelope_id)
            return
        job = self._acknowledged(envelope_id, reason)
        assert job is not None
        if reason == device.STALE_GROUP and self.groups is not None:
            self.failures.note((envelope_id,), failures.STALE_GROUP)
            self.groups.returned(job)
            self._pump()
            return
        code, details = FAILURES.get(reason, (codes.MESSAGE_FAILED, f"{reason}: {detail}" if detail else reason))
        log.info(
            "message.failed",
            extra={"id": envelope_id, "to": job.peer, "reason": reason, "detail": detail, "request_id": job.request_id},
        )
        if reason == device.BLOCKED and self.context.settings.blocked_is_sent:
            self.settle([job])
        else:
            self.fail([job], code, details)
        self._pump()

    def held_back(self, envelope_id: str) -> None:
        """Free the window slot of a job whose peer gets no more from the network for now."""
        job = self._unacknowledged.get(envelope_id)
        if job is None:
            return
        self.failures.note((envelope_id,), failures.HELD_BACK)
        if envelope_id not in self._held_back:
            self._held_back.add(envelope_id)
            self._unacknowledged_bytes -= len(job.body)
            # A running pump continues with the next job anyway.
            if not self._pumping:
                self._pump()

    def withdraw(self, peer: str) -> None:
        """Fail the unsent jobs that were encrypted for a peer's old keys, because the peer cannot decrypt them.

        Jobs that were sent are left to the network, which may have delivered them before.
        """
        stale = self._find_unsent(lambda job: job.peer == peer and job.kind in (device.PREKEY, device.MESSAGE))
        self._remove(stale)
        self.fail(stale, *CHANGED)

    def remove(self, chosen: Callable[[Job], bool]) -> Sequence[Job]:
        """Remove the chosen jobs that were never sent from the queue and return them; the caller ends them."""
        taken = self._find_unsent(chosen)
        self._remove(taken)
        return taken

    def _find_unsent(self, chosen: Callable[[Job], bool]) -> list[Job]:
        """Return the chosen jobs that nobody has sent."""
        found = [*self._backlog.find(chosen), *(job for job in self._waiting if chosen(job))]
        return [job for job in found if job.id not in self._inherited]

    def fail(self, jobs: Sequence[Job], code: int, details: str) -> None:
        """End jobs without sending them. Their messages get the status failed, including those that were sent
        before.
        """
        self._end(jobs, [(ids.message_of(job.id), Status.FAILED, None, (code, details)) for job in jobs])

    def settle(self, jobs: Sequence[Job]) -> None:
        """End jobs of recipients who have blocked the business. Their messages get the status sent."""
        self._end(jobs, [(ids.message_of(job.id), Status.SENT, None, None) for job in jobs])

    def _post_and_end(self, jobs: Sequence[Job]) -> None:
        """End jobs that the network has stored, after their statuses were posted if these can be posted directly."""
        report = self.statuses.reports.report([(ids.message_of(job.id), Status.SENT, None, None) for job in jobs])
        commit = functools.partial(self._commit_end, jobs, report)
        self.statuses.direct.post(report.callbacks, commit, about=report.statuses)

    def _end(self, jobs: Sequence[Job], reached: Sequence[Reached]) -> None:
        if jobs:
            report = self.statuses.reports.report(reached)
            self._commit_end(jobs, report, report.callbacks, ())

    def _commit_end(
        self,
        jobs: Sequence[Job],
        report: StatusRows,
        new_callbacks: Sequence[Callback],
        accepted: Sequence[EndedAttempt],
    ) -> None:
        """Remove jobs from the queue.

        new_callbacks: callbacks of `report` that get rows
        accepted: those that the webhook has accepted already
        """
        finished = [job.id for job in jobs]
        committed = self.context.journal.put(
            Change(
                self.context.account,
                finished_jobs=finished,
                failures=self.failures.ended(finished),
                statuses=report.statuses,
                failed_messages=report.failures,
                new_callbacks=new_callbacks,
                ended_callbacks=accepted,
            )
        )
        self.context.count.remove(len(finished))
        messages = [ids.message_of(job_id) for job_id in finished]
        committed.add_done_callback(lambda _: self.statuses.tracker.release(messages))
        if self.groups is not None:
            self.groups.finished(finished)

    def _remove(self, jobs: Sequence[Job]) -> None:
        if jobs:
            removed = {job.id for job in jobs}
            self._backlog.remove(removed)
            self._waiting = collections.deque(job for job in self._waiting if job.id not in removed)
            self.left += len(jobs)

    def _acknowledged(self, message_id: str, refusal: str = "") -> Job | None:
        job = self._unacknowledged.pop(message_id, None)
        if job is not None:
            self.left += 1
            if message_id in self._held_back:
                self._held_back.discard(message_id)
            else:
                self._unacknowledged_bytes -= len(job.body)
            self._refused.discard(message_id)
            if self._spans and (span := self._spans.pop(message_id, None)) is not None:
                span.end(error=refusal)
        return job

    def _resend_refused(self) -> None:
        refused, self._refused = self._refused, set()
        self._resend([job for message_id, job in self._unacknowledged.items() if message_id in refused])

    def _resend(self, jobs: Sequence[Job]) -> None:
        """Send unacknowledged jobs again, in the order in which they were first sent, then continue with the queue.

        If one of them is held back during this, its slot goes to a waiting job, which is still sent after all of them.
        """
        self._pumping = True
        for job in jobs:
            self._send(job)
        self._pump()

    def _pump(self) -> None:
        self._pumping = True
        while (
            self._waiting
            and self._has_room()
            and self.context.network_connection.connected
            and not self.context.journal.broken.done()
        ):
            job = self._waiting.popleft()
            self._inherited.discard(job.id)
            self._unacknowledged[job.id] = job
            self._unacknowledged_bytes += len(job.body)
            self._send(job)
        self._pumping = False

    def _has_room(self) -> bool:
        return (
            not self._refused
            and len(self._unacknowledged) - len(self._held_back) < WINDOW
            and (self._unacknowledged_bytes < WINDOW_BYTES or not self._unacknowledged)
        )

    def _send(self, job: Job) -> None:
        try:
            with self.context.quarantine.handling(ItemKind.JOB, job.id, job.peer):
                self._send_envelope(job)
        except Exception as error:
            # The shard must be reopened: raised here, the error would only close the connection, again and again.
            self.context.journal.fail(error)

    def _send_envelope(self, job: Job) -> None:
        if job.kind in group_jobs.KINDS:
            self.context.network_connection.send(group_jobs.envelope_of(job, self.context.account, ttl=self._ttl(job)))
        elif job.kind in (device.READ, device.RETRY):
            # These jobs are not encrypted: the body is the list of the message ids.
            refs = _decode_refs(job.body)
            self.context.network_connection.send(
                device.Send(0, self.context.account, job.peer, job.id, job.kind, refs=refs, trace=job.request_id)
            )
        else:
            refs = [ids.message_of(job.id)] if ids.is_repetition(job.id) else []
            trace = self._trace(job) if job.traceparent else job.request_id
            ttl = self._ttl(job)
            self.context.network_connection.send(
                device.Send(0, self.context.account, job.peer, job.id, job.kind, job.body, refs, ttl=ttl, trace=trace)
            )

    def _ttl(self, job: Job) -> int:
        return self.deadlines.ttl(job) if job.expires_at is not None else 0

    def _trace(self, job: Job) -> str:
        """Return the trace parent for the network: a span that ends with its response, however often the job is
        sent.
        """
        span = self._spans.get(job.id)
        if span is None:
            attributes = {"tidings.message_id": job.id, "tidings.request_id": job.request_id}
            span = tracing.start("message.send", job.traceparent, kind=Kind.PRODUCER, attributes=attributes)
            if span is None:
                return job.traceparent
            self._spans[job.id] = span
        return span.traceparent
