"""Whether somebody listens to the webhook, and what is done with statuses while nobody does."""

from __future__ import annotations

from collections.abc import Sized
from typing import Protocol

from prometheus_client import Counter

UNTOLD = Counter(
    "tidings_statuses_untold_total", "Statuses posted to nobody, because no webhook URL is set and the queue was full"
)


class Listens(Protocol):
    """Where callbacks go."""

    def is_set(self) -> bool:
        """Is a URL set?"""
        ...


class Audience:
    """The business's end of the callback queue.

    While a webhook URL is set, messages are refused at the queue's limit. While none is, messages are taken, and the
    statuses that do not fit the queue are dropped; with `refuses` nothing is, and messages are refused as ever.
    """

    def __init__(self, target: Listens, queue: Sized, *, limit: int, refuses: bool) -> None:
        """queue: the callbacks that wait."""
        self._target = target
        self._queue = queue
        self._limit = limit
        self._refuses = refuses
        # Statuses since somebody listened last.
        self.dropped = 0

    def pressing(self) -> int:
        """How many callbacks count when one more message asks to be accepted."""
        return len(self._queue) if self._refuses or self._target.is_set() else 0

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
