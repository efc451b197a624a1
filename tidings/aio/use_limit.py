"""Limit of uses per key and period."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU

Key = TypeVar("Key", bound=Hashable)


class UseLimit(Generic[Key]):
    """Limit of uses per key in a period, which starts with the key's first use.

    The `remembered` most recently used keys are known. A key that has been evicted starts a new period.
    """

    def __init__(self, clock: Clock, *, limit: int, period: float, remembered: int) -> None:
        """period: length, seconds. remembered: keys."""
        self._clock = clock
        self._limit = limit
        self._period = period
        self._used: LRU[Key, tuple[float, int]] = LRU(remembered)

    def take(self, key: Key) -> bool:
        """Count one use of the key. Returns false, without counting, when the limit is reached."""
        since, used = self._of(key)
        if used >= self._limit:
            return False
        self._used.put(key, (since, used + 1))
        return True

    def used(self, key: Key) -> int:
        """Return the key's uses in its current period."""
        return self._of(key)[1]

    def _of(self, key: Key) -> tuple[float, int]:
        now = self._clock.monotonic()
        entry = self._used.get(key)
        return (now, 0) if entry is None or now - entry[0] >= self._period else entry
