"""Inspection of deliveries before any read of the database."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

from tidings.observability.hot_metrics import HotCounter
from tidings.storage.business.messages import Status
from tidings.wire import device, ids
from tidings.wire.device import Deliver

EVENTS = HotCounter("tidings_events_total", "Deliveries from the network", ["kind", "outcome"])

STATUSES = {device.DELIVERED: Status.DELIVERED, device.READ: Status.READ, device.EXPIRED: Status.FAILED}
MAX_ID = 64
MAX_DELIVERIES = 500  # deliveries per part
# Message ids that are read for one part. The ids of a request to send again count more, because their contents of up to
# 32 KiB each are read too.
MAX_IDS = 4_000
_IDS_OF_REQUEST = 10
_SANE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def subjects(delivery: Deliver) -> Sequence[str]:
    """Return the messages that a delivery is about, without ids that neither we nor the network can have assigned."""
    if delivery.kind == device.EXPIRED:
        found: Sequence[str] = [ids.message_of(envelope_id) for envelope_id in delivery.refs]
    elif delivery.kind in STATUSES or delivery.kind == device.RETRY:
        found = delivery.refs
    else:
        found = (delivery.message_id,)
    # Some databases ignore blanks at the end of an id, and would find the message without them.
    return [
        message_id
        for message_id in found
        if 0 < len(message_id) <= MAX_ID and message_id.isascii() and " " not in message_id
    ]


def by_session(deliveries: Sequence[Deliver]) -> Sequence[str]:
    """Return the senders of deliveries that use a session, end one, or request another."""
    kinds = (device.PREKEY, device.MESSAGE, device.IDENTITY, device.RETRY)
    return list({delivery.sender for delivery in deliveries if delivery.kind in kinds})


def with_keys(deliveries: Sequence[Deliver]) -> Sequence[str]:
    """Return the senders of deliveries that reveal an identity."""
    return list({delivery.sender for delivery in deliveries if delivery.kind in (device.PREKEY, device.IDENTITY)})


def request_id(delivery: Deliver) -> str:
    """Return the sender's id of the message for logs; empty for none, or if it is unfit for a header."""
    return delivery.trace if _SANE_ID.fullmatch(delivery.trace) else ""


_counters = functools.cache(EVENTS.labels)


def count(delivery: Deliver, outcome: str) -> None:
    """Count a delivery of a known kind. Unknown kinds are not counted, which bounds the label values."""
    _counters(delivery.kind, outcome).inc()


def part(deliveries: Sequence[Deliver], is_suspect: Callable[[Deliver], bool] | None = None) -> Sequence[Deliver]:
    """Return the first deliveries whose database reads fit into one part, at least one. A suspect is a part of its own,
    so that an error is known to be its own.

    is_suspect: None if there are no suspects
    """
    ids = 0
    for position, delivery in enumerate(deliveries[:MAX_DELIVERIES]):
        if is_suspect is not None and is_suspect(delivery):
            return deliveries[: max(1, position)]
        ids += len(delivery.refs) * (_IDS_OF_REQUEST if delivery.kind == device.RETRY else 1)
        if ids > MAX_IDS:
            return deliveries[: max(1, position)]
    return deliveries[:MAX_DELIVERIES]
