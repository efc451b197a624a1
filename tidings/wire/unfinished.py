"""Bytes of frames that are not here in full: bounded over all connections of a process, and each frame in its time."""

from __future__ import annotations

from typing import Protocol

# Bytes of all unfinished frames together.
MAX_UNFINISHED = 32 * 1024 * 1024
# Seconds that the rest of a frame may take.
FRAME_SECONDS = 30.0


class Holder(Protocol):
    """A connection of which the beginning of a frame is kept."""

    @property
    def is_held(self) -> bool:
        """Is it we who do not read on?"""
        ...

    def give_up(self, detail: str) -> None:
        """Close it: the rest of its frame is not waited for. Nothing of it is kept any more."""
        ...


class Unfinished:
    """Unfinished frames by connection, those that have waited longest for their rest first.

    When all of them together hold more than `limit` bytes, the one that has waited longest is given up: whoever sends
    a frame in one go is never that one.
    """

    def __init__(self, *, limit: int = MAX_UNFINISHED, seconds: float = FRAME_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        # (bytes, loop time at which the frame began)
        self._kept: dict[Holder, tuple[int, float]] = {}
        self.size = 0

    def keep(self, holder: Holder, size: int, now: float, *, is_new: bool) -> None:
        """So many bytes are kept of this connection now; is_new: of another frame than before. 0 bytes are none."""
        before = self._kept.pop(holder, None) if is_new or not size else self._kept.get(holder)
        self.size += size - (before[0] if before else 0)
        if size:
            self._kept[holder] = (size, before[1] if before and not is_new else now)
        while self.size > self._limit:
            oldest = next(iter(self._kept))
            self._drop(oldest)
            oldest.give_up("too much is kept of frames that are not here in full")

    def check(self, now: float) -> None:
        """Give up what has waited for too long. Call it about once a second."""
        for holder, (size, since) in list(self._kept.items()):
            if now - since < self._seconds:
                return
            if holder.is_held:
                self.keep(holder, size, now, is_new=True)
            else:
                self._drop(holder)
                holder.give_up(f"the rest of a frame did not come within {self._seconds:g} s")

    def _drop(self, holder: Holder) -> None:
        size, _ = self._kept.pop(holder)
        self.size -= size
