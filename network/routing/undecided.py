"""Undecided envelopes, whose senders wait, and recently decided ones, by which duplicates are recognised."""

from __future__ import annotations

import logging
from collections.abc import Collection

from prometheus_client import Counter

from network.routing.delivery_queue import EnvelopeOrigin, Transit
from network.settings import Limits
from tidings.aio.lru import LRU
from tidings.aio.queues import QUEUES
from tidings.aio.quota import Quota, QuotaUsage
from tidings.observability import tracing
from tidings.observability.tracing import TRACES, Kind, Span
from tidings.wire import device

log = logging.getLogger(__name__)

REPEATED = Counter("tidings_network_repeated_total", "Duplicate envelopes from senders that were dropped")
REFUSED = Counter("tidings_network_refused_total", "Envelopes refused", ["reason"])
# Exported as 0 from the start, so that the first refusal shows as an increase.
REFUSED.labels(device.OVERLOADED)


def memory_quota(limit: int) -> Quota:
    """Return the quota of envelopes in memory: `limit` bytes, an eighth of them of one sender.

    Envelopes are stored in order, so a new one waits for all those before it. The bound per sender keeps one sender's
    part of that wait to an eighth.
    """
    return Quota(limit, limit // 8)


class UndecidedEnvelopes:
    """Envelopes in memory by (sender, id), bounded in number and bytes, and in bytes per sender; the caller refuses
    more.

    The latest `Limits.remembered` decided ones are remembered. Older duplicates are dropped by the mailbox and the
    recipient's device.
    """

    def __init__(self, limits: Limits, *, traced: Collection[str] = ()) -> None:
        """traced: numbers that may request traces of their envelopes; empty for all devices."""
        self._limits = limits
        self._traced = traced
        self._waiting: dict[tuple[str, str], Transit] = {}
        self._bytes: QuotaUsage[str] = QuotaUsage()
        self._quota = memory_quota(limits.undecided_bytes)
        self._decided: LRU[tuple[str, str], bool] = LRU(limits.remembered)
        self._through = QUEUES.join("undecided", self)
        # Spans of traced envelopes, until they are decided.
        self._spans: dict[tuple[str, str], Span] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def depth(self) -> int:
        """Return the number of envelopes whose senders wait."""
        return len(self._waiting)

    @property
    def since(self) -> float | None:
        """Return the monotonic seconds at which the oldest of them was received, `None` when there are none."""
        return next((transit.due - self._limits.store_after for transit in self._waiting.values()), None)

    def has_room(self, sender: str, size: int) -> bool:
        """Return whether one more envelope of `size` bytes may be added."""
        return len(self._waiting) < self._limits.undecided and self._bytes.has_room(self._quota, sender, size)

    def redirect_repeat(self, origin: EnvelopeOrigin, frame: device.Send) -> bool:
        """Direct the decision about a duplicate to its latest origin, at once if there is one.

        Returns whether the envelope is a duplicate.
        """
        key = (frame.sender, frame.id)
        earlier = self._waiting.get(key)
        if earlier is not None:
            if earlier.origin is not None:
                earlier.origin.superseded(earlier.n)
            earlier.origin, earlier.n = origin, frame.n
        elif key in self._decided:
            origin.accepted(frame.n)
        else:
            return False
        REPEATED.inc()
        return True

    def add(self, transit: Transit) -> None:
        """Add an envelope whose sender waits."""
        self._waiting[transit.frame.sender, transit.frame.id] = transit
        frame = transit.frame
        if TRACES.tracer is not None and tracing.is_context(frame.trace) and self._may_be_traced(frame.sender):
            self._begin_span(frame)
        self._bytes.add(frame.sender, transit.size)

    def accept(self, transit: Transit) -> None:
        """Accept an envelope that is stored or acknowledged. Does nothing when it is decided already."""
        if transit.original is not None:
            _settle(transit)
            return
        if self._drop(transit):
            _log(transit, "accepted")
            self._decided.put((transit.frame.sender, transit.frame.id), True)
            if transit.origin is not None:
                transit.origin.accepted(transit.n)
                transit.origin = None

    def refuse(self, transit: Transit, reason: str, detail: str) -> None:
        """Refuse an envelope that cannot be stored. Does nothing when it is decided already."""
        if transit.original is not None:
            _settle(transit)
            return
        if self._drop(transit, reason):
            _log(transit, reason)
            REFUSED.labels(reason).inc()
            if transit.origin is not None:
                transit.origin.refused(transit.n, reason, detail)
                transit.origin = None

    def _may_be_traced(self, sender: str) -> bool:
        return not self._traced or sender in self._traced

    def _begin_span(self, frame: device.Deliver) -> None:
        attributes = {"tidings.message_id": frame.id, "tidings.kind": frame.kind}
        span = tracing.start("envelope.route", frame.trace, kind=Kind.CONSUMER, attributes=attributes)
        if span is not None:
            self._spans[frame.sender, frame.id] = span

    def _end_span(self, frame: device.Deliver, refusal: str) -> None:
        span = self._spans.pop((frame.sender, frame.id), None)
        if span is not None:
            span.end(error=refusal)

    def _drop(self, transit: Transit, refusal: str = "") -> bool:
        waiting = self._waiting.pop((transit.frame.sender, transit.frame.id), None)
        if waiting is None:
            return False
        self._through.left += 1
        if self._spans:
            self._end_span(transit.frame, refusal)
        self._bytes.remove(waiting.frame.sender, waiting.size)
        transit.frame.body = b""
        return True


def _settle(transit: Transit) -> None:
    """Record the decision about a copy. Its sender was notified earlier, by the id of the group message."""
    if not transit.settled and transit.original is not None:
        transit.settled = True
        transit.frame.body = b""
        transit.original.decided()


def _log(transit: Transit, outcome: str) -> None:
    """Log the outcome of an envelope with the sender's trace context."""
    if log.isEnabledFor(logging.DEBUG):
        frame = transit.frame
        log.debug(
            "envelope.decided",
            extra={"id": frame.id, "kind": frame.kind, "outcome": outcome, "trace": frame.trace},
        )
