"""Sending of jobs through the Cloud API: translated, posted in the order of each recipient, and ended by the outcome.

A job is committed as `POSTED` before its post begins, because the Cloud API would send a repeated post twice. The
outcome of a post may be unknown, as for a job that an earlier owner left as `POSTED`. The job then waits for a status
of its message, for a limited time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Sequence

from prometheus_client import Counter

from coreapp.accepting.pair_rate import PairRate
from coreapp.graph_api.client import CloudResponse, NotPosted, ResponseMissing
from coreapp.graph_api.number import NumberConnections
from coreapp.graph_api.pace import backoff
from coreapp.graph_api.refused_files import FileRefusal
from coreapp.journal.change import Change
from coreapp.media.errors import MediaFailed
from coreapp.media.uploads import HeldUp
from coreapp.sending.encryption import Encryption
from coreapp.upstream import outcomes
from coreapp.upstream.bodies import OutboundMessage, Untranslatable
from coreapp.upstream.files import uploaded_ids
from coreapp.upstream.outcomes import (
    FileMissing,
    NumberStopped,
    Outcome,
    PostAccepted,
    PostDelayed,
    PostRefused,
    PostUnknown,
)
from coreapp.upstream.post_lanes import PostLane, PostLanes
from coreapp.upstream.standin_numbers import StandInNumbers
from coreapp.upstream_access import UpstreamAccess
from tidings.aio import crashpoints, service
from tidings.aio.lru import LRU
from tidings.storage import outages
from tidings.storage.business import upstream_ids, upstreams
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.sessions import SealedSendingHalf
from tidings.storage.business.upstream_ids import UpstreamId
from tidings.storage.database import Connection
from tidings.wire import codes

log = logging.getLogger(__name__)

POSTS = Counter("tidings_cloud_posts_total", "Posts of messages to the real Cloud API, by outcome", ["outcome"])
SETTLED = Counter("tidings_cloud_settled_total", "Open outcomes of posts, by what settled them", ["by"])

REMEMBERED = 10_000  # recent messages whose Cloud API ids are in memory
POST_SECONDS = 5.0  # time for a post in flight whose message an event may name
CLOSE_SECONDS = 5.0  # time for the posts in flight when the shard is closed
MAYBE_SENT = "may have been sent: the Cloud API did not confirm the message"
# Stored reasons of failed attempts. They leave out the texts of the Cloud API, which may contain phone numbers.
STOPPED = "the number is stopped: see `tidings number upstream`"
REPAIRED = "the credentials were replaced during the post"
DELAYED = "the Cloud API does not accept it now"
UNCONFIRMED = "the Cloud API did not confirm it"
INTERRUPTED = "the Coreapp ended during the post"
NOT_ISSUED = "the number stands for no user"
FILE_MISSING = "the Cloud API may have lost its file: it is uploaded again"
NO_CREDENTIALS = "the credentials cannot be opened: set them again with `tidings number upstream`"

_results = {
    PostAccepted: POSTS.labels("accepted"),
    PostRefused: POSTS.labels("refused"),
    PostDelayed: POSTS.labels("delayed"),
    NumberStopped: POSTS.labels("stopped"),
    PostUnknown: POSTS.labels("unknown"),
    FileMissing: POSTS.labels("file missing"),
}


@dataclasses.dataclass(eq=False, repr=False)
class UpstreamSender(Encryption):
    """Takes the place of encryption in a shard whose number sends through the Cloud API."""

    number: NumberConnections = dataclasses.field(kw_only=True)
    # Uploads the files of a content again, and returns the content with their new ids. Set before a job is enqueued.
    upload_again: Callable[[bytes, HeldUp], Awaitable[bytes]] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        settings = self.context.settings
        # Jobs in flight or with an open outcome, by id, until a response or a status ends them.
        self._posted: dict[str, Job] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lanes = PostLanes(
            self.number.pace,
            PairRate(self.context.clock) if settings.cloud_pair_pacing else None,
            start=self._start,
            is_stopped=self.context.journal.broken.done,
        )
        self.standin_numbers = StandInNumbers(self.context.database, self.context.account, str(settings.cloud_standin))
        self._wamids: LRU[str, str] = LRU(REMEMBERED)
        self._is_closed = False
        access = self.context.config.upstream
        self.number.opened(self.context.lease.shards, access.upstream.rate if access is not None else 0.0)
        if access is not None and not self.number.pace.fault:
            # Of another process or an earlier one: the first success ends it in the table too.
            self.number.pace.fault = access.upstream.fault
        self.context.config.on_upstream_change(self._access_changed)

    # The interface of `Encryption`.

    def encrypt_now(self, job: Job, content: bytes) -> SealedSendingHalf | None:
        """Return None: a job is stored with its sealed content."""
        return None

    def enqueue(self, job: Job, content: bytes) -> None:
        """Queue a job. It is on disk as `NEW` or `POSTED`, or already in the journal."""
        if self._is_closed:
            return
        lane = self._lanes.add(job, content)
        if len(lane.jobs) > 1:
            return
        if job.state == JobForm.POSTED:
            # Needs no permit, because nothing is posted.
            lane.is_busy = True
            self._posted[job.id] = job
            self._await_status(lane, job, PostUnknown(INTERRUPTED))
            return
        self._lanes.proceed(lane)

    def is_renewing(self, peer: str) -> bool:
        return False

    @property
    def recipients(self) -> int:
        return 0

    @property
    def waiting(self) -> int:
        return self._lanes.waiting

    @property
    def oldest(self) -> int | None:
        return self._lanes.oldest

    @property
    def renewals(self) -> int:
        return 0

    def reject(self, peer: str) -> None:
        """Do nothing: the Cloud API knows the recipient's identity."""

    def remove(self, chosen: Callable[[Job], bool]) -> Sequence[Job]:
        """Remove the chosen jobs from the queue, except those that may have been posted, and return them; the caller
        ends them.
        """
        removed = self._lanes.remove(lambda job: job.id not in self._posted and chosen(job))
        self.left += len(removed)
        return removed

    async def close(self) -> None:
        """Finish the posts in flight, and leave the others to the next owner; they are on disk."""
        self._is_closed = True
        self._lanes.close()
        for timer in self._timers.values():
            timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        await service.cancel(self._tasks)
        self.number.closed()
        await super().close()

    # Methods for receiving and read marks.

    def end_by_status(self, message_id: str, peer: str) -> Job | None:
        """Remove a job whose message has a status, so that a post of it is known to have succeeded: the present one, or
        an earlier one after which the job waits to be posted again. Returns the job, which the caller ends with the
        status; None if it had ended before.
        """
        job = self._posted.get(message_id)
        if job is None:
            lane = self._lanes.find(peer)
            if lane is None or not lane.is_first(message_id):
                return None
            job = lane.jobs[0][0]
        if job.id in self._timers or job.id not in self._posted:
            SETTLED.labels("status").inc()
        self._remove_job(job)
        return job

    def note_wamid(self, message_id: str, wamid: str) -> None:
        """Record the Cloud API's id of a message, whose row is in the journal."""
        self._wamids.put(message_id, wamid)

    async def wait_for_posts(self, peers: Collection[str]) -> None:
        """Wait for the posts to these recipients that are in flight, and until the ids of their messages are on disk. A
        post is awaited for at most 5 s.
        """
        posts = [task for task in self._tasks if task.get_name() in peers]
        if posts:
            await asyncio.wait(posts, timeout=POST_SECONDS)
        # Its commit includes the ids, or follows theirs.
        await self.context.journal.write(Change(self.context.account))

    async def find_wamids(self, message_ids: Sequence[str]) -> dict[str, str]:
        """Return the Cloud API's ids by our own, for those that are known."""
        found = {own: wamid for own in message_ids if (wamid := self._wamids.get(own)) is not None}
        missing = [own for own in message_ids if own not in found]
        if missing:
            rows = await self.context.database.query(
                lambda connection: upstream_ids.list_by_id(connection, self.context.account, missing)
            )
            found |= {row.id: row.wamid for row in rows}
        return found

    def ids_of(self, message_id: str, wamid: str) -> UpstreamId:
        """Return the row that stores both ids of a message."""
        self.note_wamid(message_id, wamid)
        return UpstreamId(self.context.account, message_id, wamid, self.context.now())

    # Methods for posting.

    def _start(self, lane: PostLane) -> None:
        job, content = lane.jobs[0]
        self._posted[job.id] = job
        if job.state == JobForm.POSTED:
            self._await_status(lane, job, PostUnknown(INTERRUPTED))
            self.number.pace.refund()
            return
        task = asyncio.get_running_loop().create_task(self._send(lane, job, content), name=job.peer)
        self._tasks.add(task)
        task.add_done_callback(self._post_ended)

    def _post_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.number.pace.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            # The job exists on disk only, so the shard must be reopened.
            self.context.journal.fail(error)

    async def _send(self, lane: PostLane, job: Job, content: bytes) -> None:
        body = await self._prepare(job, content)
        if job.id not in self._posted:
            # A status of an earlier post has ended it.
            return
        if isinstance(body, PostRefused):
            self._refuse(lane, job, body)
            return
        posted = dataclasses.replace(job, state=JobForm.POSTED)
        await self.context.journal.write(Change(self.context.account, enqueued_jobs=(posted,)))
        if job.id not in self._posted:
            return
        access = self.context.config.upstream
        outcome = await self._post(access, body)
        if isinstance(outcome, FileMissing) and not uploaded_ids(content):
            outcome = outcome.otherwise
        crashpoints.reach(crashpoints.AFTER_SEND_BEFORE_MARK)
        _results[type(outcome)].inc()
        if job.id not in self._posted:
            # A status has overtaken the response.
            if isinstance(outcome, PostAccepted):
                self._note_success()
            return
        if self._is_repaired(outcome, access):
            self._put_back(lane, job, REPAIRED)
            return
        self._handle(lane, job, outcome)

    def _is_repaired(self, outcome: Outcome, access: UpstreamAccess | None) -> bool:
        """Return whether the outcome is a fault of the number that the operator may have repaired since the post."""
        fault = outcome.otherwise if isinstance(outcome, FileMissing) else outcome
        now = self.context.config.upstream
        return isinstance(fault, NumberStopped) and now is not None and not now.is_same_as(access)

    async def _prepare(self, job: Job, content: bytes) -> bytes | PostRefused:
        """Return the body of the post, or why the message cannot be translated."""
        try:
            message = OutboundMessage(content)
            wamids = await self.find_wamids(message.named) if message.named else {}
            user_id = (await self.standin_numbers.find([job.peer])).get(job.peer, "")
            if not user_id and self.standin_numbers.is_reserved(job.peer):
                return PostRefused(codes.INVALID_USER, NOT_ISSUED)
            return message.body(job.peer, job.id, wamids=wamids, user_id=user_id)
        except Untranslatable as error:
            return PostRefused(error.code, error.details)
        except Exception as error:
            if outages.is_outage(error):
                raise
            # An error about one message must not end the shard again and again.
            log.exception("upstream.untranslatable", extra={"id": job.id})
            return PostRefused(codes.MESSAGE_FAILED, "the message cannot be translated")

    async def _post(self, access: UpstreamAccess | None, body: bytes) -> Outcome:
        if access is None or not access.token:
            return NumberStopped(NO_CREDENTIALS)
        try:
            response: CloudResponse = await self.number.client.post(access.messages_url, access.token, body)
        except NotPosted as error:
            return PostDelayed(str(error))
        except ResponseMissing as error:
            return PostUnknown(str(error))
        return outcomes.of_response(response.status, response.content, response.headers.get("retry-after", ""))

    def _handle(self, lane: PostLane, job: Job, outcome: Outcome) -> None:
        pace = self.number.pace
        if isinstance(outcome, PostAccepted):
            self._note_success()
            self._accept(lane, job, outcome)
        elif isinstance(outcome, PostRefused):
            self._note_success()
            self._refuse(lane, job, outcome)
        elif isinstance(outcome, PostUnknown):
            seconds = pace.delayed()
            log.warning("upstream.unknown", extra={"id": job.id, "error": outcome.reason, "pause_s": seconds})
            self._await_status(lane, job, outcome)
        elif isinstance(outcome, FileMissing):
            self._upload_again(lane, job, outcome)
        elif isinstance(outcome, NumberStopped):
            self._stop(outcome.reason)
            self._put_back(lane, job, STOPPED)
        else:
            self._delay(lane, job, outcome)

    def _accept(self, lane: PostLane, job: Job, outcome: PostAccepted) -> None:
        self._remove_job(job)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("message.posted", extra={"id": job.id, "to": job.peer, "request_id": job.request_id})
        committed = self.context.journal.put(
            Change(
                self.context.account,
                finished_jobs=(job.id,),
                failures=self.failures.ended((job.id,)),
                new_upstream_ids=(self.ids_of(job.id, outcome.wamid),),
            )
        )
        self.context.count.remove(1)
        committed.add_done_callback(lambda _: self.transmitter.statuses.tracker.release((job.id,)))

    def _refuse(self, lane: PostLane, job: Job, outcome: PostRefused) -> None:
        log.info(
            "message.failed",
            extra={"id": job.id, "to": job.peer, "code": outcome.code, "detail": outcome.details},
        )
        self._remove_job(job)
        self.transmitter.fail([job], outcome.code, outcome.details)

    def _delay(self, lane: PostLane, job: Job, outcome: PostDelayed) -> None:
        """Post the message again later, because the Cloud API did not accept it."""
        if outcome.of_recipient:
            lane.failures += 1
            pause = max(backoff(lane.failures), outcome.seconds)
            self._lanes.hold(lane, pause)
        else:
            pause = self.number.pace.delayed(outcome.seconds)
        log.warning("upstream.delayed", extra={"id": job.id, "error": outcome.reason, "pause_s": pause})
        self._put_back(lane, job, DELAYED)

    def _upload_again(self, lane: PostLane, job: Job, outcome: FileMissing) -> None:
        """Upload the files of a message again, once for all messages that name them, and post it with their new ids."""
        files, refused, refusal = uploaded_ids(lane.jobs[0][1]), self.number.refused_files, outcome.otherwise
        if lane.renewed == job.id:
            if isinstance(refusal, NumberStopped):
                # The phone number is known, because it has taken the files.
                refusal = PostRefused(codes.NOT_FOUND, refusal.reason)
            # The same files are not uploaded again for other messages, which may still have the earlier ids.
            for names in (files, lane.lost):
                refused.add(names, FileRefusal(refusal.code, refusal.details))
            self._handle(lane, job, refusal)
            return
        known = refused.find(files)
        if known is not None:
            if isinstance(refusal, NumberStopped) and known.code == codes.NOT_FOUND and not self.number.pace.fault:
                # This response is about the files only: it does not show that the number works.
                self._refuse(lane, job, PostRefused(known.code, known.details))
            else:
                self._handle(lane, job, refusal)
            return
        log.warning("upstream.file_missing", extra={"id": job.id})
        lane.renewed, lane.lost = job.id, files
        stopped = outcome.otherwise.reason if isinstance(outcome.otherwise, NumberStopped) else ""
        self._renew_files(lane, job, FILE_MISSING, stopped)

    def _renew_files(self, lane: PostLane, job: Job, why: str, stopped: str = "") -> None:
        """Upload those files of a lane's first job that the Cloud API does not have, and post it then.

        stopped: fault of the number if the files cannot be uploaded either; empty for none
        """
        self.failures.note((job.id,), why)
        fresh = dataclasses.replace(job, state=JobForm.NEW)
        self.context.journal.put(Change(self.context.account, enqueued_jobs=(fresh,)))
        if self._is_closed:
            return
        task = asyncio.get_running_loop().create_task(self._replace_files(lane, fresh, lane.jobs[0][1], stopped))
        self._tasks.add(task)
        task.add_done_callback(self._files_renewed)

    async def _replace_files(self, lane: PostLane, job: Job, content: bytes, stopped: str) -> None:
        def held_up(reason: str) -> None:
            self.failures.note((job.id,), reason)
            if stopped:
                self._stop(stopped)

        try:
            content = await self.upload_again(content, held_up)
        except MediaFailed as error:
            if job.id in self._posted:
                self._refuse(lane, job, PostRefused(error.code, error.details))
            return
        # A status of an earlier post may have ended it.
        if self._posted.pop(job.id, None) is not None:
            self._lanes.put_back(lane, job, content)

    def _files_renewed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.context.journal.fail(error)

    def _put_back(self, lane: PostLane, job: Job, why: str) -> None:
        """Return a job that was not accepted to the head of its lane. It is `NEW` on disk before its next post."""
        self.failures.note((job.id,), why)
        self._posted.pop(job.id, None)
        fresh = dataclasses.replace(job, state=JobForm.NEW)
        self.context.journal.put(Change(self.context.account, enqueued_jobs=(fresh,)))
        self._lanes.put_back(lane, fresh)

    def _await_status(self, lane: PostLane, job: Job, outcome: PostUnknown) -> None:
        """Wait for a status of a message, because it is unknown whether it was accepted."""
        if self._is_closed:
            return
        seconds = self.context.settings.cloud_unknown_wait
        timer = asyncio.get_running_loop().call_later(seconds, self._end_wait, lane, job, outcome)
        self._timers[job.id] = timer

    def _end_wait(self, lane: PostLane, job: Job, outcome: PostUnknown) -> None:
        """End the wait for a status: the message fails, or is posted again."""
        del self._timers[job.id]
        try:
            if self.context.settings.cloud_resends_unknown:
                SETTLED.labels("resend").inc()
                if outcome.reason == INTERRUPTED:
                    # Its files have no ids of the Cloud API: the earlier owner had these in memory.
                    self._renew_files(lane, job, UNCONFIRMED)
                    return
                self._put_back(lane, job, UNCONFIRMED)
                return
            SETTLED.labels("fail").inc()
            self._refuse(lane, job, PostRefused(codes.MESSAGE_FAILED, f"{MAYBE_SENT} ({outcome.reason})"[:1000]))
        except Exception as error:
            # Such as `BatcherFull`: the job is on disk, and the shard must be reopened.
            self.context.journal.fail(error)

    def _remove_job(self, job: Job) -> None:
        """Remove a job from its lane, and continue with the next one."""
        self._posted.pop(job.id, None)
        timer = self._timers.pop(job.id, None)
        if timer is not None:
            timer.cancel()
        self.left += 1
        self._lanes.end(job)

    # Faults of the number.

    def _stop(self, reason: str) -> None:
        if self.number.pace.stop(reason):
            log.error("upstream.stopped", extra={"number": self.context.account, "error": reason})
            self._store_fault()

    def _note_success(self) -> None:
        if self.number.pace.succeeded():
            log.warning("upstream.resumed", extra={"number": self.context.account})
            self._store_fault()

    def _store_fault(self) -> None:
        """Store the present fault for health checks and the operator."""
        task = asyncio.get_running_loop().create_task(self._persist_fault())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _persist_fault(self) -> None:
        def set_present(connection: Connection) -> Awaitable[None]:
            return upstreams.set_fault(connection, self.context.account, self.number.pace.fault)

        try:
            # Each write stores the fault of its time, so that the table has the last one in the end.
            async with self.number.fault_writes:
                await self.context.persist(set_present, retry_seconds=math.inf)
        except Exception as error:
            log.warning("upstream.fault_not_stored", extra={"error": repr(error)})

    def _access_changed(self, before: UpstreamAccess | None, access: UpstreamAccess | None) -> None:
        """Called when the upstream of the number or its credentials have changed."""
        if access is None or self._is_closed:
            return
        self.number.set_rate(access.upstream.rate)
        if not access.is_same_as(before):
            self.number.pace.resume()
