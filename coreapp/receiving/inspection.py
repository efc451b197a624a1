"""Inspection of a delivery's fields before any read of the database."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from prometheus_client import Counter

from tidings.storage.business.messages import Status
from tidings.wire import device, ids
from tidings.wire.device import Deliver

EVENTS = Counter("tidings_events_total", "Deliveries from the network", ["kind", "outcome"])

STATUSES = {device.DELIVERED: Status.DELIVERED, device.READ: Status.READ, device.EXPIRED: Status.FAILED}
MAX_ID = 64
_SANE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def subjects(delivery: Deliver) -> Sequence[str]:
    """Return the messages that a delivery is about, without ids that neither we nor the network can have assigned."""
    if delivery.kind == device.EXPIRED:
        found: Sequence[str] = [ids.message_of(envelope_id) for envelope_id in delivery.refs]
    elif delivery.kind in STATUSES or delivery.kind == device.RETRY:
        found = delivery.refs
    else:
        found = (delivery.message_id,)
    return [message_id for message_id in found if 0 < len(message_id) <= MAX_ID and message_id.isascii()]


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
