"""Memory limit and deadline for incomplete frames, over all connections of a process."""

from __future__ import annotations

from typing import Protocol

MAX_UNFINISHED = 32 * 1024 * 1024  # bytes of all incomplete frames together
FRAME_SECONDS = 30.0  # seconds until the rest of a frame must have arrived


class UnfinishedConnection(Protocol):
    """Connection that holds the start of a frame."""

    @property
    def is_held(self) -> bool:
        """Return whether this side has paused reading."""

    def give_up(self, detail: str) -> None:
        """Close the connection, and drop the incomplete frame."""


class IncompleteFrames:
    """Incomplete frames by connection, the oldest first.

    When they exceed `limit` bytes together, the connection with the oldest one is given up. A peer that sends each
    frame in one go is never that one.
    """

    def __init__(self, *, limit: int = MAX_UNFINISHED, seconds: float = FRAME_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        # (bytes, event-loop time in seconds at which the frame started)
        self._kept: dict[UnfinishedConnection, tuple[int, float]] = {}
        self.size = 0

    def keep(self, holder: UnfinishedConnection, size: int, now: float, *, is_new: bool) -> None:
        """Record the size of a connection's incomplete frame.

        size:   bytes; 0 for no incomplete frame
        is_new: whether this is another frame than at the last call
        """
        before = self._kept.pop(holder, None) if is_new or not size else self._kept.get(holder)
        self.size += size - (before[0] if before else 0)
        if size:
            self._kept[holder] = (size, before[1] if before and not is_new else now)
        while self.size > self._limit:
            oldest = next(iter(self._kept))
            self._drop(oldest)
            oldest.give_up("incomplete frames use too much memory")

    def check(self, now: float) -> None:
        """Give up connections whose frame is overdue. Call it about once a second."""
        for holder, (size, since) in list(self._kept.items()):
            if now - since < self._seconds:
                return
            if holder.is_held:
                self.keep(holder, size, now, is_new=True)
            else:
                self._drop(holder)
                holder.give_up(f"the rest of a frame did not arrive within {self._seconds:g} s")

    def _drop(self, holder: UnfinishedConnection) -> None:
        size, _ = self._kept.pop(holder)
        self.size -= size
