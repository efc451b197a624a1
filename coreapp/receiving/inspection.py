"""What a delivery says of itself, before anything is looked up."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from prometheus_client import Counter

from tidings.storage.business.messages import Status
from tidings.wire import device, ids
from tidings.wire.device import Deliver

EVENTS = Counter("tidings_events_total", "Deliveries from the servers", ["kind", "outcome"])

STATUSES = {device.DELIVERED: Status.DELIVERED, device.READ: Status.READ, device.EXPIRED: Status.FAILED}
MAX_ID = 64
_SANE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


def subjects(delivery: Deliver) -> Sequence[str]:
    """The messages that a delivery is about; ids that none of ours or of the network's can be are left out."""
    if delivery.kind == device.EXPIRED:
        found: Sequence[str] = [ids.message_of(envelope_id) for envelope_id in delivery.refs]
    elif delivery.kind in STATUSES or delivery.kind == device.RETRY:
        found = delivery.refs
    else:
        found = (delivery.message_id,)
    return [message_id for message_id in found if 0 < len(message_id) <= MAX_ID and message_id.isascii()]


def by_session(deliveries: Sequence[Deliver]) -> Sequence[str]:
    """The senders of what is read in a session, ends one, or asks for another."""
    kinds = (device.PREKEY, device.MESSAGE, device.IDENTITY, device.RETRY)
    return list({delivery.sender for delivery in deliveries if delivery.kind in kinds})


def with_keys(deliveries: Sequence[Deliver]) -> Sequence[str]:
    """The senders of what tells an identity."""
    return list({delivery.sender for delivery in deliveries if delivery.kind in (device.PREKEY, device.IDENTITY)})


def request_id(delivery: Deliver) -> str:
    """What the sender calls this message in logs, where it is fit for a header; empty for none."""
    return delivery.trace if _SANE_ID.fullmatch(delivery.trace) else ""


_counters = functools.cache(EVENTS.labels)


def count(delivery: Deliver, outcome: str) -> None:
    """Only for the kinds that are known, so that there are few."""
    _counters(delivery.kind, outcome).inc()
