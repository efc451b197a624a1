"""Delivery of callbacks to the webhook: a bounded number at a time, each until it is accepted or given up."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Mapping

from prometheus_client import Counter

from coreapp import signature
from coreapp.journal import Change, Journal
from coreapp.quarantine import Quarantine
from coreapp.webhook import retry
from coreapp.webhook.poster import Poster
from coreapp.webhook.queue import CallbackQueue
from coreapp.webhook.target import CallbackTarget
from tidings.aio import crashpoints, service
from tidings.aio.batcher import BatcherClosed, BatcherFull
from tidings.aio.clock import Clock
from tidings.aio.slots import Slots
from tidings.observability import tracing
from tidings.observability.tracing import Kind
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.quarantine import Item, ItemKind

log = logging.getLogger(__name__)

REQUESTS = Counter("callback_requests_total", "Attempts to call the webhook", ["result", "type"])
DURATION_SUM = Counter("callback_requests_duration_ms_sum", "Milliseconds spent in attempts", ["result", "type"])
DEAD = Counter("tidings_callbacks_dead_total", "Callbacks that became dead letters")

# Error of a dead letter that was given up because its handling ended the process.
QUARANTINED = "posting it has ended the process 3 times"
UNMARKED_SECONDS = 1.0  # seconds until a callback is posted again whose outcome could not be written


@dataclasses.dataclass(eq=False, repr=False)
class Deliveries:
    """Service that empties the callback queue. `target` is read before every attempt, so a change takes effect at
    once.
    """

    name = "callbacks"

    queue: CallbackQueue
    journal: Journal
    target: Callable[[], CallbackTarget]
    _: dataclasses.KW_ONLY
    poster: Poster
    clock: Clock
    # slots of concurrent posts, which other shards may share; None for slots of this shard alone
    slots: Slots | None = None
    quarantine: Quarantine | None = None  # None for one that holds nothing

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
        """Adjust the number of workers to the target's concurrency: none while there is no URL."""
        target = self.target()
        self.poster.trust(target.authorities)
        wanted = target.concurrency if target.url else 0
        self._slots.resize(max(1, target.concurrency))
        if not target.url and len(self.queue):
            log.warning("callbacks.waiting_for_url", extra={"waiting": len(self.queue)})
        while len(self._workers) > wanted:
            self._workers.pop().cancel()
        while len(self._workers) < wanted:
            self._workers.append(asyncio.create_task(self._work(), name="callback worker"))

    async def _work(self) -> None:
        while True:
            callback = await self.queue.take()
            attempts, now = callback.attempt, self.clock.now()
            try:
                await self._attempt(callback)
            except asyncio.CancelledError:
                self.queue.retry(callback)
                raise
            except (BatcherFull, BatcherClosed):
                self._come_again(callback)
            except Exception as error:
                # A bug. It counts as an attempt without a response, because the callback would otherwise be retried
                # forever.
                log.exception("webhook.unexpected", extra={"event_id": callback.event_id})
                callback.attempt = attempts
                try:
                    self._settle(callback, self.target(), now, None, f"{type(error).__name__}: {error}", 0.0)
                except Exception as failure:
                    self._come_again(callback, failure)

    def _come_again(self, callback: Callback, failure: Exception | None = None) -> None:
        """Post a callback again whose outcome could not be written, which is no fault of the webhook's."""
        log.error("webhook.not_marked", extra={"event_id": callback.event_id}, exc_info=failure)
        callback.due_at = int((self.clock.now() + UNMARKED_SECONDS) * 1000)
        self.queue.retry(callback)

    async def _attempt(self, callback: Callback) -> None:
        if not self._slots.try_take():
            await self._slots.take()
        try:
            await self.run_once(callback)
        finally:
            self._slots.release()

    async def run_once(self, callback: Callback) -> None:
        """Make one attempt at one callback, and handle its outcome."""
        target = self.target()
        now = self.clock.now()
        is_quarantined = self._quarantine.holds(ItemKind.CALLBACK, str(callback.seq))
        if is_quarantined or not callback.body:
            callback.attempt += 1
            callback.last_error = QUARANTINED if is_quarantined else "the stored body cannot be read"
            self._give_up(callback, _fields(callback, callback.attempt, None, 0.0))
            return
        with self._quarantine.hold(ItemKind.CALLBACK, str(callback.seq), callback.recipient):
            headers = signature.headers(target.keys, callback.event_id, int(now), callback.body)
        if callback.request_id:
            headers["X-Request-ID"] = callback.request_id
        span = None
        if callback.traceparent:
            attributes = {"tidings.event_id": callback.event_id, "tidings.message_id": callback.subject}
            span = tracing.start("webhook.post", callback.traceparent, kind=Kind.CLIENT, attributes=attributes)
        if span is not None:
            headers["traceparent"] = span.traceparent
        started = time.perf_counter()
        status: int | None = None
        error = ""
        try:
            status = await self.poster.post(target.url, headers, callback.body)
        except (TimeoutError, OSError, ValueError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        finally:
            if span is not None:
                span.end(error=error[:255], attributes={"http.response.status_code": status or 0})
        self._settle(callback, target, now, status, error, (time.perf_counter() - started) * 1000)

    def _settle(
        self, callback: Callback, target: CallbackTarget, now: float, status: int | None, error: str, took: float
    ) -> None:
        """Handle the outcome of an attempt. Raises `BatcherFull` and `BatcherClosed`; the caller then still has the
        callback.

        now: start of the attempt, Unix seconds
        status: HTTP status, None without a response
        took: milliseconds
        """
        attempt = callback.attempt + 1
        decision = retry.decide(status, attempt, now - callback.created_at / 1000, target.policy)
        result = "success" if isinstance(decision, retry.Delivered) else str(status or 1)
        requests, duration = _counters(result, callback.kind)
        requests.inc()
        duration.inc(took)
        if isinstance(decision, retry.Delivered):
            crashpoints.reach(crashpoints.AFTER_200_BEFORE_MARK)
            self._finish(callback)
            if log.isEnabledFor(logging.DEBUG):
                log.debug("webhook.attempted", extra=_fields(callback, attempt, status, took))
            return
        callback.attempt = attempt
        callback.last_error = error or f"HTTP {status}"
        fields = _fields(callback, attempt, status, took)
        if isinstance(decision, retry.GiveUpCallback):
            self._give_up(callback, fields)
            return
        callback.due_at = int((now + decision.seconds) * 1000)
        outcome = {"error": callback.last_error, "retry_in_s": decision.seconds}
        log.warning("webhook.attempted", extra=fields | outcome)
        if not callback.volatile:
            self.journal.put(Change(callback.account, failed_callbacks=(callback,)))
        self.queue.retry(callback)

    def _give_up(self, callback: Callback, fields: Mapping[str, object]) -> None:
        log.error("webhook.given_up", extra={**fields, "error": callback.last_error})
        if not callback.volatile:
            # Once it is a dead letter, only an operator has it posted again.
            item = Item(ItemKind.CALLBACK, str(callback.seq))
            cleared = (item,) if self._quarantine.is_suspect(*item) else ()
            self.journal.put(Change(callback.account, dead_callbacks=(callback,), cleared_suspects=cleared))
        DEAD.inc()
        self.queue.done(callback)

    def _finish(self, callback: Callback) -> None:
        if not callback.volatile:
            self.journal.put(Change(callback.account, finished_callbacks=(callback.seq,)))
        self.queue.done(callback)


@functools.cache
def _counters(result: str, kind: str) -> tuple[Counter, Counter]:
    """Return the counters of a result. Looking up labels costs more than counting; there are as many as HTTP
    statuses.
    """
    return REQUESTS.labels(result, kind), DURATION_SUM.labels(result, kind)


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
