"""Spacing between batches of receipts, in seconds, in a process with several shards.

A batch costs about as much CPU as five receipts. With many shards each has few receipts at a time, so they are
collected for longer.
"""

from __future__ import annotations

import weakref

EACH = 0.0025  # seconds between two batches of a shard, for each further shard of the process
LONGEST = 0.05  # seconds between two batches at most


class ReceiptSpacing:
    """Spacing that all shards of a process share. It grows with their number; a single shard has none."""

    def __init__(self) -> None:
        self._inboxes: weakref.WeakSet[object] = weakref.WeakSet()
        self.seconds = 0.0

    def join(self, inbox: object) -> None:
        """Count the inbox of an opened shard."""
        self._inboxes.add(inbox)
        self._update()

    def leave(self, inbox: object) -> None:
        """Count the inbox of a closed shard no longer."""
        self._inboxes.discard(inbox)
        self._update()

    def _update(self) -> None:
        self.seconds = min(LONGEST, EACH * max(0, len(self._inboxes) - 1))
