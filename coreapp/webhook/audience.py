"""Whether somebody listens to the webhook, and what is done with statuses while nobody does."""

from __future__ import annotations

from typing import Protocol

from prometheus_client import Counter

UNTOLD = Counter(
    "tidings_statuses_untold_total", "Statuses posted to nobody, because no webhook URL is set and the queue was full"
)


# Of the queue's limit, what recipients did counts for no more than this when a message asks to be accepted.
RECIPIENTS_SHARE = 0.25


class Waiting(Protocol):
    """The callbacks that wait. from_recipients: those of them that tell what recipients did."""

    def __len__(self) -> int: ...

    @property
    def from_recipients(self) -> int: ...


class Listens(Protocol):
    """Where callbacks go."""

    def is_set(self) -> bool:
        """Is a URL set?"""
        ...


class Audience:
    """The business's end of the callback queue.

    While a webhook URL is set, messages are refused at the queue's limit, of which what recipients did takes up a
    quarter at most, however much it is: their messages alone never make the API refuse. While none is, messages are
    taken, and the statuses that do not fit the queue are dropped; with `refuses` nothing is, and messages are refused
    as ever.
    """

    def __init__(self, target: Listens, queue: Waiting, *, limit: int, refuses: bool) -> None:
        self._target = target
        self._queue = queue
        self._limit = limit
        self._refuses = refuses
        # Statuses since somebody listened last.
        self.dropped = 0

    def pressing(self) -> int:
        """How many callbacks count when one more message asks to be accepted."""
        if not self._refuses and not self._target.is_set():
            return 0
        theirs = self._queue.from_recipients
        return len(self._queue) - theirs + min(theirs, int(self._limit * RECIPIENTS_SHARE))

    def is_full(self) -> bool:
        """Are statuses to be dropped?"""
        return not self._refuses and not self._target.is_set() and len(self._queue) >= self._limit

    def drop(self) -> None:
        """Count one that was."""
        UNTOLD.inc()
        self.dropped += 1

    def settings_changed(self) -> None:
        """A URL may have been set: what is dropped is counted from the next time that there is none."""
        if self._target.is_set():
            self.dropped = 0
