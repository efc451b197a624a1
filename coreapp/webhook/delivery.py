"""Delivery of callbacks to the webhook: a bounded number at a time, each until it is accepted or given up."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from prometheus_client import Counter

from coreapp.journal import Change, Journal
from coreapp.quarantine import Quarantine
from coreapp.webhook import retry
from coreapp.webhook.cloud import envelope
from coreapp.webhook.poster import Poster
from coreapp.webhook.queue import CallbackQueue
from coreapp.webhook.rehearsal import WebhookRehearsal
from coreapp.webhook.target import CallbackTarget
from tidings.aio import crashpoints, service
from tidings.aio.batcher import BatcherClosed, BatcherFull
from tidings.aio.clock import Clock
from tidings.aio.slots import Slots
from tidings.observability import tracing
from tidings.observability.tracing import Kind
from tidings.storage.business import callback_history
from tidings.storage.business.callback_history import Attempt, Ended
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.quarantine import Item, ItemKind

log = logging.getLogger(__name__)

_LABELS = ("result", "type", "number")
REQUESTS = Counter("callback_requests_total", "Attempts to call the webhook", _LABELS)
DURATION_SUM = Counter("callback_requests_duration_ms_sum", "Milliseconds spent in attempts", _LABELS)
DEAD = Counter("tidings_callbacks_dead_total", "Callbacks that became dead letters")

# Error of a dead letter that was given up because its handling ended the process.
QUARANTINED = "posting it has ended the process 3 times"
# Error of a dead letter whose format has no URL while the other one has one.
NO_URL = "no URL is set for webhooks in this format"
MAX_BODY = 2_500_000  # bytes of several callbacks in one post
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
    # largest number of callbacks of the Cloud API in one post; 0 for those of v1, which are posted singly
    batch: int = 0
    rehearsal: WebhookRehearsal | None = None  # failures that tests request; None outside test mode
    keeps_attempts: bool = False  # whether each attempt is written, with its response

    @property
    def is_cloud(self) -> bool:
        """Return whether it delivers the callbacks in the format of the Cloud API."""
        return self.batch > 0

    @property
    def name(self) -> str:
        return "cloud callbacks" if self.is_cloud else "callbacks"

    def __post_init__(self) -> None:
        self._slots = self.slots if self.slots is not None else Slots()
        self._quarantine = self.quarantine if self.quarantine is not None else Quarantine()
        self._changed = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []

    def kick(self) -> None:
        """Read the target again, because it may have changed."""
        self._changed.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set. Posts in flight are then cancelled, and the callbacks are posted again later."""
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                self._staff()
                self._changed.clear()
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait([stopping, changed], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            stopping.cancel()
            await service.cancel(self._workers)
            self._workers.clear()
            self.poster.close()

    def _staff(self) -> None:
        """Adjust the number of workers to the target's concurrency: none while there is no URL, and one that gives the
        callbacks up while only the other format has a URL.
        """
        target = self.target()
        if target.is_set:
            self.poster.trust(target.authorities)
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
            if self.batch > 1:
                batch += self.queue.take_ready(self.batch - 1, cloud=self.is_cloud)
            await self._post(batch)

    async def _post(self, batch: list[Callback]) -> None:
        """Make one attempt at these callbacks, which are removed from `batch` as their outcome is handled."""
        attempts, now = {callback.seq: callback.attempt for callback in batch}, self.clock.now()
        try:
            await self._attempt(batch)
        except asyncio.CancelledError:
            for callback in batch:
                self.queue.retry(callback)
            raise
        except (BatcherFull, BatcherClosed):
            for callback in batch:
                self._come_again(callback)
        except Exception as error:
            # A bug. It counts as an attempt without a response, because the callback would otherwise be retried
            # forever.
            for callback in batch:
                log.exception("webhook.unexpected", extra={"event_id": callback.event_id})
                callback.attempt = attempts[callback.seq]
                try:
                    self._settle(callback, self.target(), now, None, f"{type(error).__name__}: {error}", 0.0)
                except Exception as failure:
                    self._come_again(callback, failure)

    def _come_again(self, callback: Callback, failure: Exception | None = None) -> None:
        """Post a callback again whose outcome could not be written, which is no fault of the webhook's."""
        log.error("webhook.not_marked", extra={"event_id": callback.event_id}, exc_info=failure)
        callback.due_at = int((self.clock.now() + UNMARKED_SECONDS) * 1000)
        self.queue.retry(callback)

    async def _attempt(self, batch: list[Callback]) -> None:
        if not self._slots.try_take():
            await self._slots.take()
        try:
            await self.run_once(batch)
        finally:
            self._slots.release()

    async def run_once(self, batch: list[Callback]) -> None:
        """Make one attempt at one or several callbacks, and handle the outcome of each, which leaves `batch` then."""
        target = self.target()
        now = self.clock.now()
        self._reject(batch, target)
        if not batch:
            return
        if len(batch) > 1:
            self._reduce(batch, target)
        first, is_single = batch[0], len(batch) == 1
        # Of several, the first is named: if the process dies, it is a suspect and posted alone.
        with self._quarantine.hold(ItemKind.CALLBACK, str(first.seq), first.recipient):
            body = first.body if is_single else envelope.joined([callback.body for callback in batch])
            event_ids = first.event_id if is_single else ",".join([callback.event_id for callback in batch])
            headers = target.sign(target.keys, event_ids, int(now), body)
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
            status = await self._send(first, target.url_of(first), headers, body, excerpt)
        except (TimeoutError, OSError, ValueError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        finally:
            if span is not None:
                span.end(error=error[:255], attributes={"http.response.status_code": status or 0})
        took = (time.perf_counter() - started) * 1000
        while batch:
            self._settle(batch[0], target, now, status, error, took, bytes(excerpt or b""))
            del batch[0]

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
            self._give_up(callback, _fields(callback, callback.attempt, None, 0.0))
            batch.remove(callback)

    def _reduce(self, batch: list[Callback], target: CallbackTarget) -> None:
        """Return callbacks to the queue that do not fit into one body with the first one: those with another URL, those
        beyond `MAX_BODY`, and suspects, which are posted alone.
        """
        first, size = batch[0], len(batch[0].body)
        is_alone = self._is_suspect(first)
        for callback in batch[1:]:
            size += len(callback.body)
            is_elsewhere = target.url_of(callback) != target.url_of(first)
            if is_alone or is_elsewhere or size > MAX_BODY or self._is_suspect(callback):
                batch.remove(callback)
                self.queue.retry(callback)

    def _is_suspect(self, callback: Callback) -> bool:
        return self._quarantine.is_suspect(ItemKind.CALLBACK, str(callback.seq))

    async def _send(
        self, first: Callback, url: str, headers: Mapping[str, str], body: bytes, excerpt: bytearray | None
    ) -> int:
        """Post a body and return the status of the response. Raises the errors of `Poster.post`.

        first: the first callback of the body
        excerpt: set to the first bytes of the response; None if they are not wanted
        """
        kept = () if excerpt is None else (excerpt,)
        if self.rehearsal is None:
            return await self.poster.post(url, headers, body, *kept)
        return await self.rehearsal.post(first.recipient, lambda: self.poster.post(url, headers, body, *kept))

    def _settle(
        self,
        callback: Callback,
        target: CallbackTarget,
        now: float,
        status: int | None,
        error: str,
        took: float,
        response: bytes = b"",
    ) -> None:
        """Handle the outcome of an attempt. Raises `BatcherFull` and `BatcherClosed`; the caller then still has the
        callback.

        now: start of the attempt, Unix seconds
        status: HTTP status, None without a response
        took: milliseconds
        response: first bytes of its content
        """
        attempt = callback.attempt + 1
        tried: Sequence[Attempt] = ()
        if self.keeps_attempts:
            at = int(now * 1000)
            tried = (callback_history.attempt(callback, attempt, at, took, status, error=error, response=response),)
        decision = retry.decide(status, attempt, now - callback.created_at / 1000, target.policy)
        result = "success" if isinstance(decision, retry.Delivered) else str(status or 1)
        requests, duration = _counters(result, callback.kind, callback.account)
        requests.inc()
        duration.inc(took)
        if isinstance(decision, retry.Delivered):
            crashpoints.reach(crashpoints.AFTER_200_BEFORE_MARK)
            self._finish(callback, [Ended(callback, one) for one in tried])
            if log.isEnabledFor(logging.DEBUG):
                log.debug("webhook.attempted", extra=_fields(callback, attempt, status, took))
            return
        callback.attempt = attempt
        callback.last_error = error or f"HTTP {status}"
        fields = _fields(callback, attempt, status, took)
        if isinstance(decision, retry.GiveUpCallback):
            self._give_up(callback, fields, tried)
            return
        callback.due_at = int((now + decision.seconds) * 1000)
        outcome = {"error": callback.last_error, "retry_in_s": decision.seconds}
        log.warning("webhook.attempted", extra=fields | outcome)
        if not callback.volatile:
            self.journal.put(Change(callback.account, failed_callbacks=(callback,), attempts=tried))
        self.queue.retry(callback)

    def _give_up(self, callback: Callback, fields: Mapping[str, object], tried: Sequence[Attempt] = ()) -> None:
        log.error("webhook.given_up", extra={**fields, "error": callback.last_error})
        if not callback.volatile:
            # Once it is a dead letter, only an operator has it posted again.
            item = Item(ItemKind.CALLBACK, str(callback.seq))
            cleared = (item,) if self._quarantine.is_suspect(*item) else ()
            change = Change(callback.account, dead_callbacks=(callback,), attempts=tried, cleared_suspects=cleared)
            self.journal.put(change)
        DEAD.inc()
        self.queue.done(callback)

    def _finish(self, callback: Callback, ended: Sequence[Ended]) -> None:
        if not callback.volatile:
            self.journal.put(Change(callback.account, finished_callbacks=(callback.seq,), ended_callbacks=ended))
        self.queue.done(callback)


@functools.cache
def _counters(result: str, kind: str, number: str) -> tuple[Counter, Counter]:
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
