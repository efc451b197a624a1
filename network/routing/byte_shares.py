"""Bytes that wait in memory, by whose they are: bounded together, and of each sender."""

from __future__ import annotations

# One sender has at most such a part of all.
PART = 8


class ByteShares:
    """Counts of bytes by sender.

    What waits is stored in its order, so whoever comes next waits for all that is there: for an eighth of it at most if
    it is one sender's. Whoever has nothing there finds room for one envelope of any size.
    """

    __slots__ = ("_limit", "_of", "_share", "_total")

    def __init__(self, limit: int) -> None:
        """limit: bytes of all together."""
        self._limit = limit
        self._share = limit // PART
        self._total = 0
        self._of: dict[str, int] = {}

    def has_room(self, sender: str, size: int) -> bool:
        """For so many bytes more of this sender's?"""
        if self._total + size > self._limit:
            return False
        waiting = self._of.get(sender)
        return waiting is None or waiting + size <= self._share

    def add(self, sender: str, size: int) -> None:
        """They are there. size: not 0."""
        self._total += size
        self._of[sender] = self._of.get(sender, 0) + size

    def remove(self, sender: str, size: int) -> None:
        """They are not there any more."""
        self._total -= size
        left = self._of[sender] - size
        if left:
            self._of[sender] = left
        else:
            del self._of[sender]
