"""How long the statuses of a message wait, so that its sender knows the id by which they tell of it."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from tidings.runtime.clock import Clock
from tidings.storage.business.callbacks import Callback

# Acceptances answered within the delay. Of more than that the oldest are forgotten: their statuses do not wait.
LIMIT = 200_000


class StatusDelay:
    """Statuses are due when the acceptance of their message was answered so many seconds ago.

    A whole message is concerned and not its first status: those of one message are posted in order anyway, and those
    that come later than the delay are due at once. What an earlier owner accepted it may have answered until the last
    moment, so it counts as answered when this one began.
    """

    def __init__(self, seconds: float, clock: Clock, *, limit: int = LIMIT) -> None:
        self._clock = clock
        self._limit = limit
        self._delay = round(seconds * 1000)
        # Of messages that are being accepted: as many as Webapps may ask at a time.
        self._unanswered: set[str] = set()
        # Those of them with statuses already, whose due time is not known yet.
        self._early: set[str] = set()
        self._due: dict[str, int] = {}
        self._answered: collections.deque[tuple[int, str]] = collections.deque()
        self._inherited_due = self._now() + self._delay

    @property
    def remembered(self) -> int:
        """Messages that are being accepted, or whose acceptance was answered within the delay."""
        return len(self._unanswered) + len(self._due)

    def accepting(self, message_id: str) -> None:
        """A new message: its statuses may be asked about from now on, `answered` must follow."""
        if self._delay:
            self._unanswered.add(message_id)

    def answered(self, message_id: str) -> None:
        """Its sender is told the id now."""
        if not self._delay:
            return
        now = self._now()
        self._unanswered.discard(message_id)
        self._due[message_id] = now + self._delay
        self._answered.append((now + self._delay, message_id))
        while self._answered[0][0] <= now or len(self._answered) > self._limit:
            self._due.pop(self._answered.popleft()[1], None)

    def due_at(self, message_id: str, now: int) -> int:
        """When a status that is reported now may be posted, in Unix milliseconds as `now`; 0 for at once.

        That of a message whose acceptance is not answered yet is a guess, which `committed` mends.
        """
        if not self._delay:
            return 0
        if message_id in self._unanswered:
            self._early.add(message_id)
            return now + self._delay
        due = self._due.get(message_id, self._inherited_due)
        return due if due > now else 0

    def committed(self, callbacks: Sequence[Callback]) -> None:
        """These are on disk now, and so is the message of each."""
        if not self._early:
            return
        for callback in callbacks:
            if callback.subject in self._early:
                self._early.discard(callback.subject)
                # If it is not answered yet it will be in this turn of the event loop.
                callback.due_at = self._due.get(callback.subject, self._now() + self._delay)
                callback.created_at = max(callback.created_at, callback.due_at)

    def _now(self) -> int:
        return int(self._clock.now() * 1000)
