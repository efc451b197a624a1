"""Metrics under the names of the On-Premises API, for messages and for requests of Webapps."""

from __future__ import annotations

import functools

from prometheus_client import Counter, Summary

from tidings.storage.business.messages import Status

PERSISTED = Counter("out_message_persisted", "Messages accepted, by type", ["type"])
REACHED = Counter("out_message_status", "Statuses that messages reached", ["status"])
SENT = Summary(
    "out_message_sent_duration_ms",
    "Milliseconds from acceptance of a message until the network has stored it",
    ["type"],
)
RECEIVED = Counter("in_message_persisted", "Messages from recipients that were stored, by type", ["type"])
ANSWERED = Summary("endpoint_requests_duration_ms", "Requests from Webapps and their duration", ["method", "result"])
CALLED = Summary(
    "internal_server_requests_duration_ms", "Calls to the network and their duration", ["operation", "result"]
)

# Looking up labels costs more than counting; there are few label values.
persisted = functools.cache(PERSISTED.labels)
received = functools.lru_cache(256)(RECEIVED.labels)
answered = functools.cache(ANSWERED.labels)
_sent = functools.cache(SENT.labels)
_statuses = {status: REACHED.labels(status.name.lower()) for status in Status if Status.SENT <= status <= Status.FAILED}


def reached(status: Status, kind: str, seconds: float) -> None:
    """Count a message that reached a status.

    kind: type of the message
    seconds: time since it was accepted
    """
    _statuses[status].inc()
    if status is Status.SENT:
        _sent(kind).observe(max(0.0, seconds) * 1000)
