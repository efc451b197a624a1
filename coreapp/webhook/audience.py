"""Whether somebody listens to the webhook, and what is done with statuses while nobody does."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter

UNTOLD = Counter(
    "tidings_statuses_untold_total", "Statuses posted to nobody, because no webhook URL is set and the queue was full"
)


class Audience:
    """The business's end of the callback queue.

    While a webhook URL is set, messages are refused at the queue's limit. While none is, messages are taken, and the
    statuses that do not fit the queue are dropped; with `refuses` nothing is, and messages are refused as ever.
    """

    def __init__(self, listens: Callable[[], bool], waiting: Callable[[], int], limit: int, *, refuses: bool) -> None:
        """listens(): is a URL set; waiting(): callbacks in the queue."""
        self._listens = listens
        self._waiting = waiting
        self._limit = limit
        self._refuses = refuses
        # Statuses since somebody listened last.
        self.dropped = 0

    def pressing(self) -> int:
        """How many callbacks count when one more message asks to be accepted."""
        return self._waiting() if self._refuses or self._listens() else 0

    def is_full(self) -> bool:
        """Are statuses to be dropped?"""
        return not self._refuses and not self._listens() and self._waiting() >= self._limit

    def drop(self) -> None:
        """Count one that was."""
        UNTOLD.inc()
        self.dropped += 1

    def settings_changed(self) -> None:
        """A URL may have been set: what is dropped is counted from the next time that there is none."""
        if self._listens():
            self.dropped = 0
