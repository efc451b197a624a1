"""Receipts: a recipient received or read our messages, or the network gave them up."""

from __future__ import annotations

from coreapp.receiving.effects import BatchEffects
from coreapp.receiving.inspection import STATUSES, count, subjects
from coreapp.statuses.tracker import StatusTracker
from tidings.storage.business.messages import Status
from tidings.wire import codes
from tidings.wire.device import Deliver

EXPIRED = (codes.EXPIRED, "the message was not delivered within its time to live")


class Receipts:
    """Handles receipts for one account's messages, which the tracker must hold. Receipts of unknown messages are
    ignored.
    """

    def __init__(self, tracker: StatusTracker) -> None:
        self._tracker = tracker

    def note(self, delivery: Deliver, effects: BatchEffects) -> None:
        """Record a receipt. Each status is reported once, however often it arrives."""
        status = STATUSES[delivery.kind]
        error = EXPIRED if status is Status.FAILED else None
        for message_id in subjects(delivery):
            if delivery.group and self._tracker.peer(message_id) == delivery.group and status is not Status.FAILED:
                effects.reached.append((message_id, Status.SENT, delivery.timestamp // 1000, None))
                news = effects.arrivals.receipt(delivery, message_id, status)
                count(delivery, "noted" if news else "duplicate")
                continue
            # Only the recipient of a message can report its status.
            if self._tracker.peer(message_id) != delivery.sender:
                count(delivery, "unknown")
                continue
            count(delivery, "noted")
            effects.reached.append((message_id, status, delivery.timestamp // 1000, error))
