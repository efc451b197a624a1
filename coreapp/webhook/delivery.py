"""Delivery of callbacks to the webhook: a bounded number at a time, each until it is accepted or given up."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from operator import attrgetter

from prometheus_client import Counter, Histogram

from coreapp.journal.change import Change
from coreapp.journal.journal import Journal
from coreapp.quarantine import Quarantine
from coreapp.webhook import batch_splits, retry
from coreapp.webhook.batch_splits import BatchSplits
from coreapp.webhook.batches import Room
from coreapp.webhook.direct_posts import DirectPosts
from coreapp.webhook.poster import Poster
from coreapp.webhook.queue import CallbackQueue
from coreapp.webhook.rehearsal import WebhookRehearsal
from coreapp.webhook.target import CallbackTarget
from tidings.aio import crashpoints, service
from tidings.aio.batcher import BatcherClosed, BatcherFull
from tidings.aio.clock import Clock
from tidings.aio.slots import Slots
from tidings.observability import tracing
from tidings.observability.hot_metrics import HotCount, HotCounter
from tidings.observability.tracing import Kind
from tidings.storage.business import callback_history
from tidings.storage.business.callback_history import Attempt, EndedAttempt
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.quarantine import Item, ItemKind

log = logging.getLogger(__name__)

_LABELS = ("result", "type", "number")
REQUESTS = HotCounter("callback_requests_total", "Attempts at callbacks, each of one post counted", _LABELS)
DURATION_SUM = HotCounter("callback_requests_duration_ms_sum", "Milliseconds spent in attempts", _LABELS)
DEAD = Counter("tidings_callbacks_dead_total", "Callbacks that became dead letters")
BATCHES = Histogram(
    "tidings_callback_batch_size", "Callbacks of a post with several", ("number",), buckets=(2, 5, 10, 20, 50, 100)
)

# Error of a dead letter that was given up because its handling ended the process.
QUARANTINED = "posting it has ended the process 3 times"
# Error of a dead letter whose format has no URL while the other one has one.
NO_URL = "no URL is set for webhooks in this format"
UNMARKED_SECONDS = 1.0  # seconds until a callback is posted again whose outcome could not be written


@dataclasses.dataclass(eq=False, repr=False)
class Deliveries:
    """Service that empties the callback queue. `target` is read before every attempt, so a change takes effect at
    once.
    """

    queue: CallbackQueue
    journal: Journal
    target: Callable[[], CallbackTarget]
    _: dataclasses.KW_ONLY
    poster: Poster
    clock: Clock
    # slots of concurrent posts, which other shards may share; None for slots of this shard alone
    slots: Slots | None = None
    quarantine: Quarantine | None = None  # None for one that holds nothing
    is_cloud: bool = False  # whether it delivers the callbacks in the format of the Cloud API, or those of v1
    direct: DirectPosts | None = None  # posts of callbacks without rows; None for none
    rehearsal: WebhookRehearsal | None = None  # failures that tests request; None outside test mode
    keeps_attempts: bool = False  # whether each attempt is written, with its response

    @property
    def name(self) -> str:
        return "cloud callbacks" if self.is_cloud else "callbacks"

    def __post_init__(self) -> None:
        self._slots = self.slots if self.slots is not None else Slots()
        self._quarantine = self.quarantine if self.quarantine is not None else Quarantine()
        self._changed = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []
        self._batch = 1  # largest number of callbacks in one post
        self._splits = BatchSplits()

    def wake(self) -> None:
        """Read the target again, because it may have changed."""
        self._changed.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set. Posts in flight are then cancelled, and the callbacks are posted again later."""
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                self._adjust_workers()
                self._changed.clear()
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait([stopping, changed], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            stopping.cancel()
            await service.cancel(self._workers)
            self._workers.clear()
            self.poster.close()

    def _adjust_workers(self) -> None:
        """Adjust the number of workers to the target's concurrency. Without a URL there is none, or one that gives the
        callbacks up if the other format has a URL.
        """
        target = self.target()
        if target.is_set:
            self.poster.trust(target.authorities)
        self._batch = target.batch
        wanted = target.concurrency if target.is_set else int(target.is_replaced)
        self._slots.resize(max(1, target.concurrency))
        if not target.is_set and not target.is_replaced and not self.is_cloud and len(self.queue):
            log.warning("callbacks.waiting_for_url", extra={"waiting": len(self.queue)})
        while len(self._workers) > wanted:
            self._workers.pop().cancel()
        while len(self._workers) < wanted:
            self._workers.append(asyncio.create_task(self._work(), name="callback worker"))

    async def _work(self) -> None:
        while True:
            batch = [await self.queue.take(cloud=self.is_cloud)]
            if self._batch > 1:
                self._fill(batch)
            await self._post(batch)

    def _fill(self, batch: list[Callback]) -> None:
        """Add the due callbacks that may share a post with the first one. Suspects are posted alone."""
        room = Room(batch[0])
        if room.is_closed or self._is_suspect(batch[0]):
            return

        def admits(callback: Callback) -> bool:
            return not self._is_suspect(callback) and room.admits(callback)

        batch += self.queue.take_ready(self._batch - 1, admits, cloud=self.is_cloud)
        # A batch that is posted again has the same id and bytes, whatever the order in which its callbacks came.
        batch.sort(key=attrgetter("seq"))

    async def _post(self, batch: list[Callback]) -> None:
        """Make one attempt at these callbacks, which are removed from `batch` as their outcome is handled."""
        attempts = {callback.seq: callback.attempt for callback in batch}
        try:
            if not self._slots.try_take():
                await self._slots.take()
            try:
                await self.run_once(batch)
            finally:
                self._slots.release()
        except asyncio.CancelledError:
            for callback in batch:
                self.queue.retry(callback)
            raise
        except (BatcherFull, BatcherClosed):
            self._repeat(batch)
        except Exception as error:
            # A bug. It counts as an attempt without a response, because the callback would otherwise be retried
            # forever.
            were_together = len(batch) > 1
            for callback in batch:
                log.exception("webhook.unexpected", extra={"event_id": callback.event_id})
                callback.attempt = attempts[callback.seq]
                callback.alone |= were_together
                try:
                    self._settle(
                        [callback], self.target(), self.clock.now(), None, f"{type(error).__name__}: {error}", 0.0
                    )
                except Exception as failure:
                    self._repeat([callback], failure)

    def _repeat(self, batch: Sequence[Callback], failure: Exception | None = None) -> None:
        """Post callbacks again, together, whose outcome could not be written. It is no fault of the webhook's."""
        due_at = int((self.clock.now() + UNMARKED_SECONDS) * 1000)
        for callback in batch:
            log.error("webhook.not_marked", extra={"event_id": callback.event_id}, exc_info=failure)
            callback.due_at = due_at
            self.queue.retry(callback)

    async def run_once(self, batch: list[Callback]) -> None:
        """Make one attempt at one or several callbacks, and handle the outcome. Handled callbacks leave `batch`."""
        target = self.target()
        now = self.clock.now()
        self._reject(batch, target)
        if not batch:
            return
        first, is_single = batch[0], len(batch) == 1
        # The first callback of a batch is named. If the process dies, it becomes a suspect and is posted alone.
        with self._quarantine.handling(ItemKind.CALLBACK, str(first.seq), first.recipient):
            event_id, body = (first.event_id, first.body) if is_single else target.join(batch)
            headers = target.sign(target.keys, event_id, int(now), body)
        if target.extra_headers:
            headers = {**target.extra_headers, **headers}
        if first.request_id and is_single:
            headers["X-Request-ID"] = first.request_id
        span = None
        if first.traceparent and is_single:
            attributes = {"tidings.event_id": first.event_id, "tidings.message_id": first.subject}
            span = tracing.start("webhook.post", first.traceparent, kind=Kind.CLIENT, attributes=attributes)
        if span is not None:
            headers["traceparent"] = span.traceparent
        started = time.perf_counter()
        status: int | None = None
        error, excerpt = "", bytearray() if self.keeps_attempts else None
        try:
            status = await self._send(batch, target.url_of(first), headers, body, excerpt)
        except (TimeoutError, OSError, ValueError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        finally:
            if span is not None:
                span.end(error=error[:255], attributes={"http.response.status_code": status or 0})
        took = (time.perf_counter() - started) * 1000
        self._settle(batch, target, now, status, error, took, bytes(excerpt or b""))
        batch.clear()

    def _reject(self, batch: list[Callback], target: CallbackTarget) -> None:
        """Give up the callbacks that cannot be posted."""
        for callback in list(batch):
            if self._quarantine.holds(ItemKind.CALLBACK, str(callback.seq)):
                reason = QUARANTINED
            elif not callback.body:
                reason = "the stored body cannot be read"
            elif not target.url_of(callback):
                reason = NO_URL
            else:
                continue
            callback.attempt += 1
            callback.last_error = reason
            log.error("webhook.given_up", extra=_fields(callback, callback.attempt, None, 0.0) | {"error": reason})
            self._fail((), (callback,))
            batch.remove(callback)

    def _is_suspect(self, callback: Callback) -> bool:
        return self._quarantine.is_suspect(ItemKind.CALLBACK, str(callback.seq))

    def _send(
        self, batch: Sequence[Callback], url: str, headers: Mapping[str, str], body: bytes, excerpt: bytearray | None
    ) -> Awaitable[int]:
        """Return a post of a body, as `Poster.post` does. Not a coroutine: a post is a hot path.

        batch: the callbacks of the body
        excerpt: set to the first bytes of the response; None if they are not wanted
        """
        if self.rehearsal is None:
            return self.poster.post(url, headers, body, excerpt)
        recipients = [callback.recipient for callback in batch]
        return self.rehearsal.post(recipients, lambda: self.poster.post(url, headers, body, excerpt))

    def _settle(
        self,
        batch: Sequence[Callback],
        target: CallbackTarget,
        now: float,
        status: int | None,
        error: str,
        took: float,
        response: bytes = b"",
    ) -> None:
        """Handle the outcome of an attempt, in one commit. Raises `BatcherFull` and `BatcherClosed`; the caller then
        still has the callbacks.

        now: start of the attempt, Unix seconds
        status: HTTP status, None without a response
        took: milliseconds
        response: first bytes of its content
        """
        is_accepted = retry.is_accepted(status, target.policy)
        _count(batch, "success" if is_accepted else str(status or 1), took)
        if status is not None and is_accepted:
            self._finish(batch, now, status, took, response)
            return
        tried: Sequence[Attempt] = ()
        if self.keeps_attempts:
            tried = [
                callback_history.attempt(
                    callback, callback.attempt + 1, int(now * 1000), took, status, error=error, response=response
                )
                for callback in batch
                if not callback.volatile
            ]
        size = len(batch)
        are_alone = self._splits.are_alone(status, size=size, was_alone=batch[0].alone, now=now)
        failed: list[Callback] = []
        dead: list[Callback] = []
        what = error or f"HTTP {status}" + (f" to {size} callbacks in one post" if size > 1 else "")
        for callback in batch:
            decision = self._decide(callback, target, now, status)
            callback.attempt += 1
            callback.last_error = what
            is_given_up = isinstance(decision, retry.GiveUpCallback)
            # Refused together with others, it does not become a dead letter before it was refused alone.
            callback.alone = are_alone or (is_given_up and size > 1 and batch_splits.is_refusal(status))
            if callback.alone and size > 1:
                decision = retry.RetryAfter(0.0)
            fields = _fields(callback, callback.attempt, status, took) | {"error": callback.last_error}
            if isinstance(decision, retry.RetryAfter):
                callback.due_at = int((now + decision.seconds) * 1000)
                log.warning("webhook.attempted", extra=fields | {"retry_in_s": decision.seconds})
                failed.append(callback)
            else:
                log.error("webhook.given_up", extra=fields)
                dead.append(callback)
        self._fail(failed, dead, tried)

    def _decide(self, callback: Callback, target: CallbackTarget, now: float, status: int | None) -> retry.Decision:
        """Return what follows an attempt that started at `now` (Unix seconds). A clock that jumps ahead ends no retries
        of callbacks in memory.
        """
        age = min(now - callback.created_at / 1000, self.clock.monotonic() - callback.since)
        return retry.decide(status, callback.attempt + 1, age, target.policy)

    def _fail(self, failed: Sequence[Callback], dead: Sequence[Callback], tried: Sequence[Attempt] = ()) -> None:
        """Write failed callbacks, which return to the queue, and dead letters, which leave it."""
        if self.direct is not None:
            self.direct.write((*failed, *dead))
        changed = tuple(callback for callback in failed if not callback.volatile)
        buried = tuple(callback for callback in dead if not callback.volatile)
        if changed or buried:
            # Once it is a dead letter, only an operator has it posted again.
            items = [Item(ItemKind.CALLBACK, str(callback.seq)) for callback in buried if self._is_suspect(callback)]
            account = (changed or buried)[0].account
            self.journal.put(
                Change(account, failed_callbacks=changed, dead_callbacks=buried, attempts=tried, cleared_suspects=items)
            )
        DEAD.inc(len(dead))
        for callback in dead:
            self.queue.done(callback)
        for callback in failed:
            self.queue.retry(callback)

    def _finish(self, batch: Sequence[Callback], now: float, status: int, took: float, response: bytes) -> None:
        """End accepted callbacks. Parameters as of `_settle`."""
        crashpoints.reach(crashpoints.AFTER_200_BEFORE_MARK)
        at = int(now * 1000)
        ended: Sequence[EndedAttempt] = [
            EndedAttempt(one, one.attempt + 1, at, int(took), status, response) for one in batch if not one.volatile
        ]
        written = ended if self.direct is None else self.direct.written(ended)
        if written:
            # It may raise, and then nothing is recorded.
            seqs = tuple([attempt.callback.seq for attempt in written])
            self.journal.put(Change(batch[0].account, finished_callbacks=seqs, ended_callbacks=written))
        if self.direct is not None:
            self.direct.accepted(ended)
        for callback in batch:
            self.queue.done(callback)
        self._splits.accepts = True
        if log.isEnabledFor(logging.DEBUG):
            for callback in batch:
                log.debug("webhook.attempted", extra=_fields(callback, callback.attempt + 1, status, took))


def _count(batch: Sequence[Callback], result: str, took: float) -> None:
    """Count an attempt.

    took: milliseconds
    """
    account, size = batch[0].account, len(batch)
    kinds: Collection[tuple[str, int]] = ((batch[0].kind, 1),)
    if size > 1:
        BATCHES.labels(account).observe(size)
        kinds = collections.Counter([callback.kind for callback in batch]).items()
    for kind, count in kinds:
        requests, duration = _counters(result, kind, account)
        requests.inc(count)
        duration.inc(took * count)


@functools.cache
def _counters(result: str, kind: str, number: str) -> tuple[HotCount, HotCount]:
    """Return the counters of a result. Looking up labels costs more than counting; there are as many as HTTP
    statuses, for each type and number.
    """
    return REQUESTS.labels(result, kind, number), DURATION_SUM.labels(result, kind, number)


def _fields(callback: Callback, attempt: int, status: int | None, took: float) -> dict[str, object]:
    return {
        "event_id": callback.event_id,
        "subject": callback.subject,
        "type": callback.kind,
        "attempt": attempt,
        "status": status,
        "took_ms": round(took, 1),
        "request_id": callback.request_id,
    }
