"""Metrics under the names of the On-Premises API, for messages and for requests of Webapps."""

from __future__ import annotations

import functools

from prometheus_client import Summary

from tidings.observability.hot_metrics import HotCount, HotCounter, HotSummary
from tidings.storage.business.messages import Status

PERSISTED = HotCounter("out_message_persisted", "Messages accepted, by type", ["type", "number"])
REACHED = HotCounter("out_message_status", "Statuses that messages reached", ["status", "number"])
SENT = HotSummary(
    "out_message_sent_duration_ms",
    "Milliseconds from acceptance of a message until the network has stored it",
    ["type", "number"],
)
RECEIVED = HotCounter("in_message_persisted", "Messages from recipients that were stored", ["type", "number"])
HANDLED = HotSummary("endpoint_requests_duration_ms", "Requests from Webapps and their duration", ["method", "result"])
CALLED = Summary(
    "internal_server_requests_duration_ms", "Calls to the network and their duration", ["operation", "result"]
)

# Looking up labels costs more than counting; there are few label values.
# Parameters of both: type of the message, number of the business.
persisted = functools.cache(PERSISTED.labels)
received = functools.lru_cache(1_024)(RECEIVED.labels)
handled = functools.cache(HANDLED.labels)
_sent = functools.cache(SENT.labels)


@functools.cache
def _reached(status: Status, number: str) -> HotCount:
    return REACHED.labels(status.name.lower(), number)


def begin(number: str) -> None:
    """Create the counters of statuses of a number, so that the first message is visible as an increase."""
    for status in Status:
        if Status.SENT <= status <= Status.FAILED:
            _reached(status, number)


def reached(status: Status, kind: str, seconds: float, number: str) -> None:
    """Count a message that reached a status.

    kind: type of the message
    seconds: time since it was accepted
    number: number of the business
    """
    _reached(status, number).inc()
    if status is Status.SENT:
        _sent(kind, number).observe(max(0.0, seconds) * 1000)
