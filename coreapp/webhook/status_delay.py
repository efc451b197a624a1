"""Delay of a message's statuses until the client has received the id that they name."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence

from tidings.aio.clock import Clock
from tidings.storage.business.callbacks import Callback

# Accepted messages whose response was sent within the delay. Beyond that the oldest are dropped, and their statuses are
# not held.
LIMIT = 200_000


class StatusDelay:
    """Makes statuses due a fixed delay after the response to their message's request.

    The delay applies to the message, not only to its first status: the statuses of one message are posted in order, and
    those that come after the delay are due at once. A message accepted by an earlier owner may have got its response at
    the last moment, so it counts as responded to when this owner started.
    """

    def __init__(
        self, seconds: float, clock: Clock, *, limit: int = LIMIT, extra: Callable[[str], int] | None = None
    ) -> None:
        """Create the delay.

        extra: returns extra milliseconds for the statuses of a recipient; None for no extra delay
        """
        self._extra = extra
        self._clock = clock
        self._limit = limit
        self._delay = round(seconds * 1000)
        # Messages being accepted; at most as many as concurrent requests of Webapps.
        self._pending: set[str] = set()
        # Messages without a response that have a status already, by the subject of its callback. Its due time is not
        # known yet.
        self._early: dict[str, str] = {}
        self._due: dict[str, int] = {}
        self._responded: collections.deque[tuple[int, str]] = collections.deque()
        self._inherited_due = self._clock.now_ms() + self._delay

    @property
    def remembered(self) -> int:
        """Messages that are being accepted, or whose response was sent within the delay."""
        return len(self._pending) + len(self._due)

    def accepting(self, message_id: str) -> None:
        """Register a new message. `due_at` may be called for it from now on, and `responded` must follow."""
        if self._delay:
            self._pending.add(message_id)

    def responded(self, message_id: str) -> None:
        """Record that the response to the message's request is being sent."""
        if not self._delay:
            return
        now = self._clock.now_ms()
        self._pending.discard(message_id)
        self._due[message_id] = now + self._delay
        self._responded.append((now + self._delay, message_id))
        while self._responded[0][0] <= now or len(self._responded) > self._limit:
            self._due.pop(self._responded.popleft()[1], None)

    def due_for(self, message_id: str, recipient: str, now: int, subject: str = "") -> int:
        """Return `due_at` plus the extra delay of the recipient."""
        extra = self._extra(recipient) if self._extra is not None else 0
        due = self.due_at(message_id, now, subject)
        return max(due, now) + extra if extra else due

    def due_at(self, message_id: str, now: int, subject: str = "") -> int:
        """Return when a status that is reported now may be posted, Unix milliseconds; 0 for at once.

        The value for a message without a response yet is an estimate, which `committed` corrects.

        now: Unix milliseconds
        subject: subject of the callback that reports it; empty for the message
        """
        if not self._delay:
            return 0
        if message_id in self._pending:
            self._early[subject or message_id] = message_id
            return now + self._delay
        due = self._due.get(message_id, self._inherited_due)
        return due if due > now else 0

    def committed(self, callbacks: Sequence[Callback]) -> None:
        """Correct the due times of callbacks that are on disk, as are their messages."""
        if not self._early:
            return
        for callback in callbacks:
            message_id = self._early.pop(callback.subject, None)
            if message_id is not None:
                # If no response was sent yet, it will be within this event-loop iteration.
                due_at = self._due.get(message_id, self._clock.now_ms() + self._delay)
                callback.delay(due_at + (self._extra(callback.recipient) if self._extra is not None else 0))
