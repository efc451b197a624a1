"""Bytes that wait in memory, bounded in total and per sender."""

from __future__ import annotations

# Inverse of the fraction of the total that one sender may use.
PART = 8


class SenderBytes:
    """Counts of waiting bytes by sender.

    Waiting envelopes are stored in order, so a new one waits for all those before it. The bound per sender keeps one
    sender's part of that wait to an eighth. A sender with nothing waiting has room for one envelope of any size within
    the total.
    """

    __slots__ = ("_limit", "_of", "_share", "_total")

    def __init__(self, limit: int) -> None:
        """limit: bytes of all senders together."""
        self._limit = limit
        self._share = limit // PART
        self._total = 0
        self._of: dict[str, int] = {}

    def has_room(self, sender: str, size: int) -> bool:
        """Return whether `size` more bytes of this sender may wait."""
        if self._total + size > self._limit:
            return False
        waiting = self._of.get(sender)
        return waiting is None or waiting + size <= self._share

    def add(self, sender: str, size: int) -> None:
        """Count waiting bytes.

        size: not 0.
        """
        self._total += size
        self._of[sender] = self._of.get(sender, 0) + size

    def remove(self, sender: str, size: int) -> None:
        """Remove bytes that no longer wait."""
        self._total -= size
        left = self._of[sender] - size
        if left:
            self._of[sender] = left
        else:
            del self._of[sender]
