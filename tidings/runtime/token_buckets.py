"""Token buckets, one for each of many keys."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU

Key = TypeVar("Key", bound=Hashable)


class TokenBuckets(Generic[Key]):
    """A token bucket for each key: the moment at which it will be full again, which is all that there is to know.

    Of keys whose buckets are not full the last `remembered` are known, about 200 bytes each.
    """

    def __init__(self, clock: Clock, *, rate: float, burst: float, remembered: int) -> None:
        """rate: tokens a second, 0 is unlimited; burst: tokens of a full bucket."""
        self._clock = clock
        self._rate = rate
        self._filling = max(burst, 1.0) / rate if rate else 0.0
        self._full_at: LRU[Key, float] = LRU(remembered)

    def __len__(self) -> int:
        return len(self._full_at)

    def wait(self, key: Key, cost: float = 1.0) -> float:
        """Seconds until there are so many tokens."""
        if not self._rate:
            return 0.0
        now = self._clock.monotonic()
        full_at = max(now, self._full_at.get(key) or 0.0) + cost / self._rate
        # More than the bucket ever has is there when it is full. To the microsecond: less is an error of rounding.
        return max(0.0, round(full_at - now - max(self._filling, cost / self._rate), 6))

    def add(self, key: Key, cost: float = 1.0) -> None:
        """Take tokens, also such as are not there yet; a negative cost gives them back."""
        if self._rate:
            now = self._clock.monotonic()
            full_at = max(now, self._full_at.get(key) or 0.0) + cost / self._rate
            if full_at > now:
                self._full_at.put(key, full_at)
            else:
                self._full_at.drop(key)

    def learn(self, key: Key, full_after: float) -> None:
        """Others took tokens of the same bucket: it is full after so many seconds, or later by what is known here."""
        full_at = self._clock.monotonic() + full_after
        self._full_at.put(key, max(full_at, self._full_at.get(key) or 0.0))

    def take(self, key: Key, cost: float = 1.0) -> float:
        """Take tokens if they are there, and return 0; else the seconds until they are."""
        wait = self.wait(key, cost)
        if not wait:
            self.add(key, cost)
        return wait
