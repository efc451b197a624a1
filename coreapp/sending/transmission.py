"""Sending encrypted jobs to the servers, windowed, and noting what became of them.

A job is sent only once its ciphertext is on disk, always with the same bytes, and again after every reconnect until
the servers accept or refuse it; they drop what they have seen.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.journal import Change
from coreapp.sending import failures, group_jobs
from coreapp.sending.failures import JobFailures
from coreapp.statuses.reports import Reached
from coreapp.statuses.wiring import Statuses
from tidings.runtime import crashpoints, tracing
from tidings.runtime.tracing import Kind, Span
from tidings.storage.business.jobs import Job
from tidings.storage.business.messages import Status
from tidings.wire import codes, device, ids

log = logging.getLogger(__name__)

SENT = Counter("tidings_messages_sent_total", "Envelopes with an answer of the servers", ["result"])

_decode_refs = msgspec.json.Decoder(list[str]).decode

RETRY_SECONDS = 1.0  # after the servers said that they are overloaded

FAILURES = {
    device.NO_SUCH_NUMBER: (codes.INVALID_USER, "the recipient is not on the network any more"),
    device.NO_SUCH_GROUP: (codes.GROUP_MISSING, "the group does not exist any more"),
    device.NOT_PARTICIPANT: (codes.GROUP_MISSING, "the business is not a participant of the group any more"),
    device.BLOCKED: (codes.RECIPIENT_BLOCKED, "the recipient has blocked this business"),
}
CHANGED = (codes.USER_CHANGED, "the recipient has registered anew before this was sent: send it again")


class GroupJobs(Protocol):
    """Whoever encrypts for groups."""

    def returned(self, job: Job) -> None:
        """Encrypt a message again, because its group has changed."""
        ...

    def finished(self, ids: Sequence[str]) -> None:
        """These jobs have left the queue, as the journal will have written."""
        ...


class Transmitter:
    """The encrypted jobs of one shard, from commit to acceptance.

    At most `window` jobs and `window_bytes` are unanswered. When the servers are overloaded everything waits: what
    they refused goes out again first, so that messages to one peer keep their order, but for those that were under way.
    When they take no more for one peer, its jobs wait with the upstream, outside of the window: nobody else is held up.
    """

    def __init__(
        self,
        context: ShardContext,
        statuses: Statuses,
        *,
        failures: JobFailures,
        window: int = 2000,
        window_bytes: int = 4 * 1024 * 1024,
    ) -> None:
        self._upstream = context.upstream
        self._failures = failures
        self._journal = context.journal
        self._count = context.count
        self._account = context.account
        self._clock = context.clock
        # The business does not learn who has blocked it.
        self._blocked_is_sent = context.settings.blocked_is_sent
        self._tracker = statuses.tracker
        self._reports = statuses.reports
        self._groups: GroupJobs | None = None
        self._window = window
        self._window_bytes = window_bytes
        self._waiting: collections.deque[Job] = collections.deque()
        self._unanswered: dict[str, Job] = {}
        self._unanswered_bytes = 0
        # Refused as overloaded; they keep their place in the window until they are sent again.
        self._refused: set[str] = set()
        # Of peers for whom the servers take no more for now.
        self._held_back: set[str] = set()
        self._pumping = False
        # Sent by an earlier owner perhaps: what the servers made of them is not known.
        self._inherited: set[str] = set()
        self._accepted = SENT.labels("accepted")
        # Jobs that were answered, or withdrawn.
        self.left = 0
        # Of jobs that were sent and have no answer, and are traced.
        self._spans: dict[str, Span] = {}

    @property
    def unanswered(self) -> int:
        """Jobs that were sent and have no answer."""
        return len(self._unanswered)

    @property
    def waiting(self) -> int:
        """Jobs that are encrypted and have no answer, those that were not sent yet among them."""
        return len(self._waiting) + len(self._unanswered)

    @property
    def kept_back(self) -> int:
        """Those of them to recipients for whom the servers take no more for now."""
        return len(self._held_back)

    @property
    def oldest(self) -> int | None:
        """When the first of them was accepted, Unix milliseconds."""
        first = [next(iter(self._unanswered.values()), None), self._waiting[0] if self._waiting else None]
        return min((job.created_at for job in first if job is not None), default=None)

    def encrypt_groups_with(self, groups: GroupJobs) -> None:
        """Say whose the jobs of groups are; before the first of them is offered."""
        self._groups = groups

    def offer(self, jobs: Sequence[Job], *, inherited: bool = False) -> None:
        """Jobs whose ciphertext is on disk, in the order in which they are to arrive.

        inherited: an earlier owner may have sent them already.
        """
        if inherited:
            self._inherited.update(job.id for job in jobs)
        self._waiting.extend(jobs)
        self._pump()

    def connected(self) -> None:
        """Send again all that has no answer, then go on."""
        self._refused.clear()
        self._unanswered_bytes = sum(len(job.body) for job in self._unanswered.values())
        self._held_back.clear()
        if self._unanswered:
            self._failures.note(self._unanswered, failures.UNANSWERED)
        # Those that are held back again leave their places while this goes on.
        for job in list(self._unanswered.values()):
            self._send(job)
        self._pump()

    def accepted(self, envelope_ids: Sequence[str]) -> None:
        """Safe with the servers: the job is done, the message is sent."""
        done = [job for envelope_id in envelope_ids if (job := self._answered(envelope_id)) is not None]
        if done:
            crashpoints.reach(crashpoints.AFTER_SEND_BEFORE_MARK)
            if log.isEnabledFor(logging.DEBUG):
                for job in done:
                    log.debug("message.sent", extra={"id": job.id, "to": job.peer, "request_id": job.request_id})
            self._end(done, [(ids.message_of(job.id), Status.SENT, None, None) for job in done])
            self._accepted.inc(len(done))
        self._pump()

    def refused(self, envelope_id: str, reason: str, detail: str) -> None:
        """Not taken: tried again when the servers were overloaded, failed otherwise."""
        if envelope_id not in self._unanswered:
            return
        SENT.labels(reason).inc()
        if reason == device.OVERLOADED:
            self._failures.note((envelope_id,), failures.OVERLOADED)
            if not self._refused:
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._again)
            self._refused.add(envelope_id)
            return
        job = self._answered(envelope_id, reason)
        assert job is not None
        if reason == device.STALE_GROUP and self._groups is not None:
            self._failures.note((envelope_id,), failures.STALE_GROUP)
            self._groups.returned(job)
            self._pump()
            return
        code, details = FAILURES.get(reason, (codes.MESSAGE_FAILED, f"{reason}: {detail}" if detail else reason))
        log.info(
            "message.failed",
            extra={"id": envelope_id, "to": job.peer, "reason": reason, "detail": detail, "request_id": job.request_id},
        )
        if reason == device.BLOCKED and self._blocked_is_sent:
            self.settle([job])
        else:
            self.fail([job], code, details)
        self._pump()

    def held_back(self, envelope_id: str) -> None:
        """The servers take no more for this one's peer for now; its place in the window is for others."""
        job = self._unanswered.get(envelope_id)
        if job is None:
            return
        self._failures.note((envelope_id,), failures.HELD_BACK)
        if envelope_id not in self._held_back:
            self._held_back.add(envelope_id)
            self._unanswered_bytes -= len(job.body)
            # Within a pump it is the next job's turn anyway.
            if not self._pumping:
                self._pump()

    def withdraw(self, peer: str) -> None:
        """The peer has new keys: what was encrypted for the old ones and never sent fails, since nobody can read it.

        What was sent is left to the servers, who may have delivered it before.
        """
        stale = [
            job
            for job in self._waiting
            if job.peer == peer and job.kind in (device.PREKEY, device.MESSAGE) and job.id not in self._inherited
        ]
        self._remove(stale)
        self.fail(stale, *CHANGED)

    def take_out(self, chosen: Callable[[Job], bool]) -> Sequence[Job]:
        """Take those of the jobs out of the queue that are chosen and were never sent, to be ended by the caller."""
        taken = [job for job in self._waiting if chosen(job) and job.id not in self._inherited]
        self._remove(taken)
        return taken

    def fail(self, jobs: Sequence[Job], code: int, details: str) -> None:
        """End jobs without sending them; their messages get the status failed, those also that were sent before."""
        self._end(jobs, [(ids.message_of(job.id), Status.FAILED, None, (code, details)) for job in jobs])

    def settle(self, jobs: Sequence[Job]) -> None:
        """End jobs of recipients who have blocked the business: their messages get the status sent."""
        self._end(jobs, [(ids.message_of(job.id), Status.SENT, None, None) for job in jobs])

    def _end(self, jobs: Sequence[Job], reached: Sequence[Reached]) -> None:
        if not jobs:
            return
        report = self._reports.report(reached)
        finished = [job.id for job in jobs]
        committed = self._journal.put(
            Change(
                self._account,
                finished_jobs=finished,
                failures=self._failures.ended(finished),
                statuses=report.statuses,
                new_callbacks=report.callbacks,
            )
        )
        self._count.remove(len(finished))
        messages = [ids.message_of(job_id) for job_id in finished]
        committed.add_done_callback(lambda _: self._tracker.release(messages))
        if self._groups is not None:
            self._groups.finished(finished)

    def _remove(self, jobs: Sequence[Job]) -> None:
        if jobs:
            removed = {job.id for job in jobs}
            self._waiting = collections.deque(job for job in self._waiting if job.id not in removed)
            self.left += len(jobs)

    def _answered(self, message_id: str, refusal: str = "") -> Job | None:
        job = self._unanswered.pop(message_id, None)
        if job is not None:
            self.left += 1
            if message_id in self._held_back:
                self._held_back.discard(message_id)
            else:
                self._unanswered_bytes -= len(job.body)
            self._refused.discard(message_id)
            if self._spans and (span := self._spans.pop(message_id, None)) is not None:
                span.end(error=refusal)
        return job

    def _again(self) -> None:
        refused, self._refused = self._refused, set()
        if refused:
            # In the order in which they were first sent.
            for message_id, job in self._unanswered.items():
                if message_id in refused:
                    self._send(job)
        self._pump()

    def _pump(self) -> None:
        self._pumping = True
        while self._waiting and self._has_room() and self._upstream.connected:
            job = self._waiting.popleft()
            self._inherited.discard(job.id)
            self._unanswered[job.id] = job
            self._unanswered_bytes += len(job.body)
            self._send(job)
        self._pumping = False

    def _has_room(self) -> bool:
        return (
            not self._refused
            and len(self._unanswered) - len(self._held_back) < self._window
            and (self._unanswered_bytes < self._window_bytes or not self._unanswered)
        )

    def _send(self, job: Job) -> None:
        if job.kind in group_jobs.KINDS:
            self._upstream.send(group_jobs.envelope_of(job, self._account, ttl=self._ttl(job)))
        elif job.kind in (device.READ, device.RETRY):
            # Nothing in it is to be encrypted: the body is the list of the messages that it is about.
            refs = _decode_refs(job.body)
            self._upstream.send(
                device.Send(0, self._account, job.peer, job.id, job.kind, refs=refs, trace=job.request_id)
            )
        else:
            refs = [ids.message_of(job.id)] if ids.is_repetition(job.id) else []
            trace = self._trace(job) if job.traceparent else job.request_id
            ttl = self._ttl(job)
            self._upstream.send(
                device.Send(0, self._account, job.peer, job.id, job.kind, job.body, refs, ttl=ttl, trace=trace)
            )

    def _ttl(self, job: Job) -> int:
        return job.ttl(int(self._clock.now() * 1000)) if job.expires_at is not None else 0

    def _trace(self, job: Job) -> str:
        """What the network sees of the trace: the span that ends with its answer, however often this is sent."""
        span = self._spans.get(job.id)
        if span is None:
            attributes = {"tidings.message_id": job.id, "tidings.request_id": job.request_id}
            span = tracing.start("message.send", job.traceparent, kind=Kind.PRODUCER, attributes=attributes)
            if span is None:
                return job.traceparent
            self._spans[job.id] = span
        return span.traceparent
