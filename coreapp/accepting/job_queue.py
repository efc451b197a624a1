"""The job queue of one shard: taking messages in, and taking up again what a crash left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from prometheus_client import Counter, Gauge

from coreapp import ids, statistics
from coreapp.accepting.idempotency import IdempotencyKeys
from coreapp.capacity import Admission
from coreapp.errors import Refused
from coreapp.groups.requests import GroupRequests
from coreapp.ids import MessageIds
from coreapp.journal import Change, Journal
from coreapp.media.preparation_queue import PreparationQueue
from coreapp.peers.contact_cache import ContactCache
from coreapp.peers.identities import Identities
from coreapp.peers.service_window import ServiceWindow
from coreapp.recovery.control_messages import ControlMessages
from coreapp.recovery.sent_content import SentContents
from coreapp.sending.encryption import Encryption, Outlet
from coreapp.statuses.reports import StatusReports
from coreapp.statuses.tracker import StatusTracker
from coreapp.webhook.status_delay import StatusDelay
from tidings import e2ee
from tidings.runtime import crashpoints
from tidings.runtime.clock import Clock
from tidings.storage.business.jobs import Job, State
from tidings.storage.business.messages import Message, Status
from tidings.wire import codes, core

log = logging.getLogger(__name__)

SIZE = Gauge("tidings_job_queue_size", "Messages accepted and not yet safe with the servers")
ACCEPTED = Counter("tidings_messages_accepted_total", "Messages accepted", ["encrypted"])


GROUP = "group"  # a recipient type
OUTSIDE_WINDOW = "the recipient did not write within the last 24 hours: only a template can be sent"


class JobCount:
    """How many jobs are in the queue, of those that are on disk or being committed."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self) -> int:
        return self._count

    def add(self, count: int) -> None:
        self._count += count
        SIZE.set(self._count)

    def remove(self, count: int) -> None:
        self.add(-count)


class JobQueue:
    """Accepts the messages of one account and starts them on their way."""

    def __init__(
        self,
        admission: Admission,
        count: JobCount,
        contacts: ContactCache,
        encryption: Encryption,
        journal: Journal,
        progress: StatusTracker,
        outlet: Outlet,
        reports: StatusReports,
        delay: StatusDelay,
        threads: ServiceWindow,
        keys: IdempotencyKeys,
        media: PreparationQueue,
        identities: Identities,
        groups: GroupRequests,
        keeping: SentContents,
        posting: ControlMessages,
        clock: Clock,
        *,
        account: str,
        shard: int,
    ) -> None:
        self._admission = admission
        self._count = count
        self._contacts = contacts
        self._encryption = encryption
        self._journal = journal
        self._progress = progress
        self._outlet = outlet
        self._reports = reports
        self._delay = delay
        self._threads = threads
        self._keys = keys
        self._media = media
        self._identities = identities
        self._groups = groups
        self._keeping = keeping
        self._posting = posting
        self._clock = clock
        self._account = account
        self._shard = shard
        self._ids = MessageIds()
        self._at_once = ACCEPTED.labels("at once")
        self._later = ACCEPTED.labels("later")
        self._outside = ACCEPTED.labels("never")

    async def accept(self, question: core.AcceptMessage) -> str:
        """The id of the message, once it is on disk. Raises `Refused` and `KeyInUse`.

        Where the session is at hand the message is committed already encrypted: one commit for both.
        """
        if question.idempotency_key:
            return await self._keys.once(question, lambda: self._accept(question))
        return await self._accept(question)

    async def _accept(self, question: core.AcceptMessage) -> str:
        if question.recipient_type == GROUP:
            self._groups.require_sendable(question.to)
            return await self._enqueue(question)
        if question.to == self._account:
            raise Refused(codes.BAD_USER, "a business cannot send to itself")
        await self._contacts.require_valid(question.to)
        if self._threads.needs_window(question.kind) and not await self._threads.is_open(question.to):
            return await self._fail(question, codes.REENGAGEMENT, OUTSIDE_WINDOW)
        # From here to the journal nothing else runs: the limit holds, and the order of ids is the order of commits.
        self._identities.require_acknowledged(question.to)
        return await self._enqueue(question)

    async def _enqueue(self, question: core.AcceptMessage) -> str:
        self._admission.check()
        now = int(self._clock.now() * 1000)
        message_id = self._ids.new()
        job = Job(message_id, self._shard, self._account, question.to, State.NEW, "", b"", now, question.request_id)
        message = Message(
            message_id,
            self._account,
            self._shard,
            question.to,
            question.kind,
            Status.ACCEPTED,
            now,
            question.request_id,
            question.category,
        )
        ready = self._media.ready(question.to, question.content, has_media=question.has_media)
        half = self._encryption.encrypt_now(job, ready) if ready is not None else None
        if half is None:
            # As it came: pointers to files would not outlive a long wait.
            self._encryption.seal_content(job, question.content)
        if question.recipient_type != GROUP:
            content = question.content if ready is None else ready
            message.kept = self._keeping.keep(message_id, job.peer, content, encrypted=half is not None)
        crashpoints.reach(crashpoints.AFTER_SEAL_BEFORE_COMMIT)
        committed = self._journal.put(
            Change(
                self._account,
                new_messages=(message,),
                enqueued_jobs=(job,),
                sending_halves=(half,) if half else (),
                used_keys=self._keys.use(question, message_id),
            ),
            urgent=True,
        )
        self._count.add(1)
        self._delay.accepting(message_id)
        self._progress.hold((message_id,))
        self._progress.remember(
            message_id, question.to, Status.ACCEPTED, question.kind, question.request_id, question.category
        )
        if half is not None:
            self._encryption.hold(question.to, committed)
        elif ready is not None:
            self._encryption.enter_lane(job, ready)
        else:
            self._media.enter(job, question.content, has_media=question.has_media)
        await committed
        statistics.persisted(question.kind).inc()
        self._delay.answered(message_id)
        crashpoints.reach(crashpoints.AFTER_COMMIT_BEFORE_REPLY)
        if half is not None:
            self._at_once.inc()
            self._outlet.offer((job,))
        else:
            self._later.inc()
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "message.accepted", extra={"id": message_id, "to": question.to, "request_id": question.request_id}
            )
        return message_id

    async def _fail(self, question: core.AcceptMessage, code: int, details: str) -> str:
        """Accept a message that will never be sent: it gets an id, and the webhook a failed status."""
        self._admission.check()
        message_id = self._ids.new()
        now = int(self._clock.now() * 1000)
        self._delay.accepting(message_id)
        self._progress.hold((message_id,))
        try:
            self._progress.remember(
                message_id, question.to, Status.ACCEPTED, question.kind, question.request_id, question.category
            )
            report = self._reports.report([(message_id, Status.FAILED, None, (code, details))])
            message = Message(
                message_id,
                self._account,
                self._shard,
                question.to,
                question.kind,
                Status.FAILED,
                now,
                question.request_id,
                question.category,
            )
            await self._journal.write(
                Change(
                    self._account,
                    new_messages=(message,),
                    new_callbacks=report.callbacks,
                    used_keys=self._keys.use(question, message_id),
                )
            )
        finally:
            self._delay.answered(message_id)
            self._progress.release((message_id,))
        self._outside.inc()
        return message_id

    def finished(self, message_ids: Sequence[str], committed: asyncio.Future[None]) -> None:
        """These jobs have left the queue, as `committed` will have written."""
        self._count.remove(len(message_ids))
        held = [ids.message_of(envelope_id) for envelope_id in message_ids]
        committed.add_done_callback(lambda _: self._progress.release(held))

    def resume(self, jobs: Sequence[Job]) -> None:
        """Take up the jobs that an earlier owner left: ciphertexts go out as they are, contents to the lanes.

        Their messages must be held in the progress book, as `accept` holds those of new ones.
        """
        self._count.add(len(jobs))
        unreadable = []
        for job in jobs:
            if job.state == State.ENCRYPTED:
                self._outlet.offer((job,), inherited=True)
                continue
            try:
                self._posting.enter(job, self._encryption.unseal_content(job))
            except e2ee.CorruptState:
                unreadable.append(job)
        if unreadable:
            log.error("jobs.unreadable", extra={"count": len(unreadable)})
            self._outlet.fail(unreadable, codes.MESSAGE_FAILED, "the stored message cannot be read")
        if jobs:
            log.info("jobs.resumed", extra={"count": len(jobs)})
