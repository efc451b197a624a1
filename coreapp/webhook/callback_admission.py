"""Admission by the callback queue, and the handling of statuses while no webhook URL is set."""

from __future__ import annotations

import dataclasses

from prometheus_client import Counter

from coreapp.webhook.queue import CallbackQueue
from coreapp.webhook.target import CurrentTargets

UNTOLD = Counter(
    "tidings_statuses_untold_total", "Statuses dropped because no webhook URL is set and the queue was full"
)


# Largest fraction of the queue's limit that callbacks caused by recipients take up when a message is to be accepted.
RECIPIENTS_SHARE = 0.25


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class CallbackAdmission:
    """The business's end of the callback queue.

    While a webhook URL is set, messages are refused at the queue's limit. Callbacks caused by recipients count for at
    most a quarter of it, so that recipients alone never make the API refuse. While no URL is set, messages are
    accepted, and statuses that exceed the limit are dropped. With `refuses` none are dropped, and messages are refused
    at the limit.
    """

    target: CurrentTargets
    queue: CallbackQueue
    _: dataclasses.KW_ONLY
    limit: int
    refuses: bool
    dropped: int = dataclasses.field(default=0, init=False)  # statuses dropped since a URL was last set

    def pressing(self) -> int:
        """Return the number of callbacks that count when one more message is to be accepted."""
        if not self.refuses and not self.target.is_set():
            return 0
        theirs = self.queue.from_recipients
        return len(self.queue) - theirs + min(theirs, int(self.limit * RECIPIENTS_SHARE))

    def is_full(self) -> bool:
        """Return whether statuses must be dropped."""
        return not self.refuses and not self.target.is_set() and len(self.queue) >= self.limit

    def drop(self) -> None:
        """Count one dropped status."""
        UNTOLD.inc()
        self.dropped += 1

    def settings_changed(self) -> None:
        """Reset the count if a URL is set now. Statuses are counted again when there is none."""
        if self.target.is_set():
            self.dropped = 0
