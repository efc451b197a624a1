"""Envelopes that senders wait for, and those decided lately, by which a repeated one is recognised."""

from __future__ import annotations

import logging
from collections.abc import Collection

from prometheus_client import Counter

from network.routing.byte_shares import ByteShares
from network.routing.delivery_queue import Origin, Transit
from network.settings import Limits
from tidings.runtime import tracing
from tidings.runtime.lru import LRU
from tidings.runtime.queues import QUEUES
from tidings.runtime.tracing import TRACES, Kind, Span
from tidings.wire import device

log = logging.getLogger(__name__)

REPEATED = Counter("tidings_network_repeated_total", "Envelopes that a sender sent again and that were dropped")
REFUSED = Counter("tidings_network_refused_total", "Envelopes refused", ["reason"])
# There from the start, at 0: a first refusal is seen as one more.
REFUSED.labels(device.OVERLOADED)


class Undecided:
    """Envelopes in memory by (sender, id), bounded in number and in bytes, of one sender too; the caller refuses what
    has no room.

    Of the decided ones the latest `Limits.remembered` are known; the mailbox and the recipient's device tell the rest.
    """

    def __init__(self, limits: Limits, *, traced: Collection[str] = ()) -> None:
        """traced: numbers that may say which of their envelopes are traced; empty for every device."""
        self._limits = limits
        self._traced = traced
        self._waiting: dict[tuple[str, str], Transit] = {}
        self._bytes = ByteShares(limits.undecided_bytes)
        self._decided: LRU[tuple[str, str], bool] = LRU(limits.remembered)
        self._through = QUEUES.join("undecided", self)
        # Of those that are traced: until they are decided.
        self._spans: dict[tuple[str, str], Span] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def depth(self) -> int:
        """Envelopes whose senders wait."""
        return len(self._waiting)

    @property
    def since(self) -> float | None:
        """Monotonic seconds at which the first of them came."""
        return next((transit.due - self._limits.store_after for transit in self._waiting.values()), None)

    def has_room(self, sender: str, size: int) -> bool:
        """For one more envelope of so many bytes?"""
        return len(self._waiting) < self._limits.undecided and self._bytes.has_room(sender, size)

    def is_repeat(self, origin: Origin, frame: device.Send) -> bool:
        """Was it sent before? Then whoever sent it last hears the decision, at once if there is one."""
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
        """Its sender waits from now on."""
        self._waiting[transit.frame.sender, transit.frame.id] = transit
        frame = transit.frame
        if TRACES.tracer is not None and tracing.is_context(frame.trace) and self._may_be_traced(frame.sender):
            self._begin_span(frame)
        self._bytes.add(frame.sender, transit.size)

    def accept(self, transit: Transit) -> None:
        """It is stored or acknowledged. Nothing happens when it is decided already."""
        if transit.original is not None:
            _settle(transit)
            return
        if self._forget(transit):
            _log(transit, "accepted")
            self._decided.put((transit.frame.sender, transit.frame.id), True)
            if transit.origin is not None:
                transit.origin.accepted(transit.n)
                transit.origin = None

    def refuse(self, transit: Transit, reason: str, detail: str) -> None:
        """It cannot be taken after all. Nothing happens when it is decided already."""
        if transit.original is not None:
            _settle(transit)
            return
        if self._forget(transit, reason):
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

    def _forget(self, transit: Transit, refusal: str = "") -> bool:
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
    """A copy is decided. Its sender, who knows it by the same id as a message to somebody, was told before."""
    if not transit.settled and transit.original is not None:
        transit.settled = True
        transit.frame.body = b""
        transit.original.decided()


def _log(transit: Transit, outcome: str) -> None:
    """What the sender says of the envelope's request, and what became of it."""
    if log.isEnabledFor(logging.DEBUG):
        frame = transit.frame
        log.debug(
            "envelope.decided",
            extra={"id": frame.id, "kind": frame.kind, "outcome": outcome, "trace": frame.trace},
        )
