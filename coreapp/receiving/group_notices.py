"""Notices of the network about changed groups: messages of type `system` for the webhook."""

from __future__ import annotations

from coreapp.receiving.effects import BatchEffects
from coreapp.receiving.inspection import count, subjects
from coreapp.statuses.tracker import StatusTracker
from coreapp.webhook import bodies, inbound
from tidings.wire.device import Deliver


class GroupNotices:
    """Handles the notices about one account's groups."""

    def __init__(self, tracker: StatusTracker) -> None:
        self._tracker = tracker

    def note(self, delivery: Deliver, effects: BatchEffects) -> None:
        """Apply a notice and report it to the webhook once."""
        if not subjects(delivery) or delivery.id in self._tracker:
            count(delivery, "duplicate")
            return
        said = effects.arrivals.changed(delivery)
        if said is None:
            count(delivery, "unusable")
            return
        count(delivery, "noted")
        effects.received(delivery, inbound.SYSTEM)
        message = inbound.Inbound(inbound.SYSTEM, said)
        body = bodies.inbound(
            delivery.id, delivery.sender, delivery.timestamp // 1000, message, group_id=delivery.group
        )
        effects.post(delivery.id, "inbound_message", body, sender=delivery.sender)
