"""Allowance of each of many keys in a period."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU

Key = TypeVar("Key", bound=Hashable)


class Allowance(Generic[Key]):
    """Uses, at most `limit` for each key in a period, which begins with the first of them.

    The last `remembered` keys are known; whoever is forgotten among so many may have as much again.
    """

    def __init__(self, clock: Clock, *, limit: int, period: float, remembered: int) -> None:
        """period: seconds."""
        self._clock = clock
        self._limit = limit
        self._period = period
        self._used: LRU[Key, tuple[float, int]] = LRU(remembered)

    def take(self, key: Key) -> bool:
        """May this key have one more? Counts as one."""
        since, used = self._of(key)
        if used >= self._limit:
            return False
        self._used.put(key, (since, used + 1))
        return True

    def used(self, key: Key) -> int:
        """How many this key has had within its period."""
        return self._of(key)[1]

    def _of(self, key: Key) -> tuple[float, int]:
        now = self._clock.monotonic()
        entry = self._used.get(key)
        return (now, 0) if entry is None or now - entry[0] >= self._period else entry
