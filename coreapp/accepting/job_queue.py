"""Job queue of one shard: accepts messages, and resumes jobs that a crash interrupted.

A message passes through stages. Each stage is a value made by the previous one, so no step can be skipped or reordered:

- `_Draft`: encrypted, or sealed until it can be encrypted
- `_Queued`: in the journal, with its position before all messages that are accepted later
- `_Stored`: on disk, so that the response and the message may be sent
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Sequence

from coreapp import statistics
from coreapp.accepting.checks import GROUP, CheckFailure, RecipientChecks
from coreapp.accepting.expiry import JobExpiry
from coreapp.accepting.idempotency import IdempotencyKeys
from coreapp.context import ShardContext
from coreapp.journal.change import Change
from coreapp.media.preparation_queue import PreparationQueue
from coreapp.recovery.wiring import Recovery
from coreapp.sending.wiring import Sending
from coreapp.statuses.wiring import Statuses
from coreapp.webhook.status_delay import StatusDelay
from tidings import e2ee
from tidings.aio import crashpoints
from tidings.observability import tracing
from tidings.observability.hot_metrics import HotCounter
from tidings.observability.tracing import Kind
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.business.quarantine import ItemKind
from tidings.storage.business.sessions import SealedSendingHalf
from tidings.wire import codes, core
from tidings.wire.ids import MessageIds

log = logging.getLogger(__name__)

# Jobs of an earlier owner that are resumed per event-loop iteration: about 2 ms.
RESUMED_PER_ITERATION = 50

ACCEPTED = HotCounter("tidings_messages_accepted_total", "Messages accepted", ["encrypted"])


@dataclasses.dataclass(slots=True)
class _Draft:
    """A message and its job, ready to be committed."""

    request: core.AcceptMessage
    message: MessageRow
    job: Job
    ready: bytes | None  # content ready to be encrypted; None while the message waits for files
    half: SealedSendingHalf | None  # half of the session that encrypted the message; None if it is not encrypted


@dataclasses.dataclass(slots=True)
class _Queued:
    """A message whose commit is in flight and whose position in the order of messages to its peer is fixed."""

    draft: _Draft
    committed: asyncio.Future[None]

    async def on_disk(self) -> _Stored:
        """Wait for the commit. Raises the error of the commit."""
        await self.committed
        return _Stored(self.draft)


@dataclasses.dataclass(slots=True)
class _Stored:
    """A message that is on disk."""

    draft: _Draft


class JobQueue:
    """Accepts the messages of one account and starts sending them."""

    def __init__(
        self,
        context: ShardContext,
        checks: RecipientChecks,
        keys: IdempotencyKeys,
        *,
        delay: StatusDelay,
        statuses: Statuses,
        sending: Sending,
        preparation: PreparationQueue,
        recovery: Recovery,
    ) -> None:
        self._journal = context.journal
        self._count = context.count
        self._clock = context.clock
        self._time_of_expiry = context.time_of_expiry
        self._account = context.account
        self._shard = context.shard
        self._checks = checks
        self._keys = keys
        self._delay = delay
        self._tracker = statuses.tracker
        self.expiry = JobExpiry(context.clock, statuses.tracker, sending.transmitter)
        self._reports = statuses.reports
        self._admission = sending.admission
        self._encryption = sending.encryption
        self._transmitter = sending.transmitter
        self._preparation = preparation
        self._quarantine = context.quarantine
        self._sent_contents = recovery.sent_contents
        self._control_messages = recovery.control_messages
        self._ids = MessageIds()
        # Id and acceptance time in Unix milliseconds of the message accepted last.
        self._last_id, self._last_ms = "", 0
        self._at_once = ACCEPTED.labels("at once")
        self._later = ACCEPTED.labels("later")
        self._outside = ACCEPTED.labels("never")

    async def accept(self, request: core.AcceptMessage) -> str:
        """Accept a message. Returns its id once it is on disk. Raises `RequestRefused` and `KeyInUse`.

        If the session is in memory, the message is committed already encrypted: one commit for both.
        """
        if request.traceparent:
            return await self._accept_traced(request)
        return await self._accept_once(request)

    async def _accept_traced(self, request: core.AcceptMessage) -> str:
        attributes = {"tidings.request_id": request.request_id, "tidings.shard": str(self._shard)}
        span = tracing.start("message.accept", request.traceparent, kind=Kind.CONSUMER, attributes=attributes)
        if span is None:
            return await self._accept_once(request)
        request.traceparent = span.traceparent
        error, message_id = "not accepted", ""
        try:
            message_id = await self._accept_once(request)
            error = ""
            return message_id
        finally:
            span.end(error=error, attributes={"tidings.message_id": message_id})

    def _accept_once(self, request: core.AcceptMessage) -> Awaitable[str]:
        if request.idempotency_key:
            return self._keys.once(request, lambda: self._accept(request))
        return self._accept(request)

    def evict_messages(self) -> None:
        """Drop the messages without a job from memory, after their rows were deleted."""
        self._tracker.evict()

    async def resume(self, jobs: Sequence[Job]) -> None:
        """Resume the jobs of an earlier owner: ciphertexts are sent as they are, contents are encrypted first.
        Quarantined jobs are not resumed. Other shards of this process are served in between.

        The tracker must hold their messages, as it holds those of new ones.
        """
        self._count.add(len(jobs))
        # The clock of the earlier owner may have been ahead.
        self._last_ms, self._last_id = max(((job.created_at, job.id) for job in jobs), default=(0, ""))
        unreadable = []
        now = await self._time_of_expiry() if any(job.expires_at is not None for job in jobs) else None
        for position, job in enumerate(jobs, 1):
            if position % RESUMED_PER_ITERATION == 0:
                await asyncio.sleep(0)
            self.expiry.watch(job, now)
            if job.traceparent:
                self._tracker.trace(job.id, job.traceparent)
            if self._quarantine.holds(ItemKind.JOB, job.id):
                self._quarantine.keep(job)
                continue
            with self._quarantine.handling(ItemKind.JOB, job.id, job.peer):
                if job.state == JobForm.ENCRYPTED:
                    self._transmitter.offer((job,), inherited=True)
                    continue
                try:
                    self._control_messages.enter(job, self._encryption.unseal_content(job))
                except e2ee.CorruptState:
                    unreadable.append(job)
        if unreadable:
            log.error("jobs.unreadable", extra={"count": len(unreadable)})
            self._transmitter.fail(unreadable, codes.MESSAGE_FAILED, "the stored message cannot be read")
        if jobs:
            log.info("jobs.resumed", extra={"count": len(jobs)})

    async def _accept(self, request: core.AcceptMessage) -> str:
        failure = await self._checks.look_up(request)
        if failure is not None:
            return await self._fail(request, failure)
        if self._checks.counts(request):
            # The recipient of a message that is refused anyway is not counted.
            self._require_room(request)
            await self._checks.reach(request)
        queued = self._enqueue(request)
        return self._send(await queued.on_disk())

    def _enqueue(self, request: core.AcceptMessage) -> _Queued:
        """Check the limits and commit without yielding to the event loop: the limits hold, and ids have the order of
        commits. Raises `RequestRefused`.
        """
        self._require_room(request)
        self._checks.count(request)
        return self._commit(self._draft(request))

    def _require_room(self, request: core.AcceptMessage) -> None:
        """Raise `RequestRefused` if the recipient must be acknowledged first, or a queue is full."""
        self._checks.require_sendable(request)
        self._admission.check()

    def _draft(self, request: core.AcceptMessage) -> _Draft:
        """Create the message: encrypted if its session is in memory and it waits for nothing, else sealed."""
        message = self._message(request, Status.ACCEPTED)
        job = Job(
            message.id,
            self._shard,
            self._account,
            request.to,
            JobForm.NEW,
            "",
            b"",
            message.created_at,
            request.request_id,
            request.traceparent,
            # The time of acceptance is later than the clock after that was set back.
            self._clock.now_ms() + request.ttl * 1000 if request.ttl else None,
        )
        ready = self._preparation.ready(request.to, request.content, has_media=request.has_media)
        half = self._encryption.encrypt_now(job, ready) if ready is not None else None
        if half is None:
            # Stored as received: pointers to files would expire during a long wait.
            self._encryption.seal_content(job, request.content)
        if request.recipient_type != GROUP:
            content = request.content if ready is None else ready
            message.kept = self._sent_contents.keep(message.id, job.peer, content, encrypted=half is not None)
        crashpoints.reach(crashpoints.AFTER_SEAL_BEFORE_COMMIT)
        return _Draft(request, message, job, ready, half)

    def _commit(self, draft: _Draft) -> _Queued:
        """Put the draft into the journal and fix its position before all messages that are accepted later."""
        request, job = draft.request, draft.job
        committed = self._journal.put(
            Change(
                self._account,
                new_messages=(draft.message,),
                enqueued_jobs=(job,),
                sending_halves=(draft.half,) if draft.half else (),
                used_keys=self._keys.use(request, job.id),
            ),
            urgent=True,
        )
        self._count.add(1)
        self.expiry.watch(job)
        self._track(request, job.id)
        if draft.half is not None:
            self._encryption.hold(request.to, committed)
        elif draft.ready is not None:
            self._encryption.enqueue(job, draft.ready)
        else:
            self._preparation.enter(job, request.content, has_media=request.has_media)
        return _Queued(draft, committed)

    def _send(self, stored: _Stored) -> str:
        """Start sending the message if it is encrypted. Returns its id for the response."""
        draft = stored.draft
        request, message_id = draft.request, draft.message.id
        statistics.persisted(request.kind, self._account).inc()
        self._delay.responded(message_id)
        crashpoints.reach(crashpoints.AFTER_COMMIT_BEFORE_REPLY)
        if draft.half is not None:
            self._at_once.inc()
            self._transmitter.offer((draft.job,))
        else:
            self._later.inc()
        if log.isEnabledFor(logging.DEBUG):
            log.debug("message.accepted", extra={"id": message_id, "to": request.to, "request_id": request.request_id})
        return message_id

    async def _fail(self, request: core.AcceptMessage, failure: CheckFailure) -> str:
        """Accept a message that will never be sent: it gets an id, and the webhook a failed status."""
        self._admission.check()
        self._checks.count(request)
        message = self._message(request, Status.FAILED)
        self._track(request, message.id)
        try:
            report = self._reports.report([(message.id, Status.FAILED, None, (failure.code, failure.details))])
            await self._journal.write(
                Change(
                    self._account,
                    new_messages=(message,),
                    failed_messages=report.failures,
                    new_callbacks=report.callbacks,
                    used_keys=self._keys.use(request, message.id),
                )
            )
        finally:
            self._delay.responded(message.id)
            self._tracker.release((message.id,))
        self._outside.inc()
        return message.id

    def _track(self, request: core.AcceptMessage, message_id: str) -> None:
        """Hold a new message until its job has left the queue, and its statuses until the response to its request."""
        self._delay.accepting(message_id)
        self._tracker.hold((message_id,))
        self._tracker.remember(
            message_id, request.to, Status.ACCEPTED, request.kind, request.request_id, request.category
        )
        if request.callback_data:
            self._tracker.keep_callback_data(message_id, request.callback_data)
        if request.traceparent:
            self._tracker.trace(message_id, request.traceparent)

    def _message(self, request: core.AcceptMessage, status: Status) -> MessageRow:
        message_id = request.id or self._ids.new()
        return MessageRow(
            message_id,
            self._account,
            self._shard,
            request.to,
            request.kind,
            status,
            self._accepted_at(message_id),
            request.request_id,
            request.category,
            callback_data=request.callback_data or None,
        )

    def _accepted_at(self, message_id: str) -> int:
        """Return the current time in Unix milliseconds, adjusted so that time and then id order messages as they were
        accepted.

        The next owner of the shard resumes them in that order. Ids are made by the clocks of several Webapps.
        """
        now = max(self._clock.now_ms(), self._last_ms)
        if now == self._last_ms and message_id < self._last_id:
            now += 1
        self._last_id, self._last_ms = message_id, now
        return now
