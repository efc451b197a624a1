"""Token buckets, one per key."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU

Key = TypeVar("Key", bound=Hashable)


class TokenBuckets(Generic[Key]):
    """Token bucket per key, stored as the moment at which it will be full again.

    The `remembered` most recently used keys whose buckets are not full are kept, at about 200 bytes each.
    """

    def __init__(self, clock: Clock, *, rate: float, burst: float, remembered: int) -> None:
        """rate: tokens per second, 0 is unlimited. burst: tokens of a full bucket. remembered: keys."""
        self._clock = clock
        self._rate = rate
        self._filling = max(burst, 1.0) / rate if rate else 0.0
        self._full_at: LRU[Key, float] = LRU(remembered)

    def __len__(self) -> int:
        return len(self._full_at)

    def wait(self, key: Key, cost: float = 1.0) -> float:
        """Return the seconds until the bucket holds `cost` tokens."""
        if not self._rate:
            return 0.0
        now = self._clock.monotonic()
        full_at = max(now, self._full_at.get(key) or 0.0) + cost / self._rate
        # A cost above the bucket's size is met by a full bucket. Rounded to microseconds: less is a rounding error.
        return max(0.0, round(full_at - now - max(self._filling, cost / self._rate), 6))

    def add(self, key: Key, cost: float = 1.0) -> None:
        """Consume tokens, also ones that are not there yet; a negative cost refunds them."""
        if self._rate:
            now = self._clock.monotonic()
            full_at = max(now, self._full_at.get(key) or 0.0) + cost / self._rate
            if full_at > now:
                self._full_at.put(key, full_at)
            else:
                self._full_at.drop(key)

    def learn(self, key: Key, full_after: float) -> None:
        """Record that others consumed tokens: the bucket is full in `full_after` seconds, or later if known here."""
        full_at = self._clock.monotonic() + full_after
        self._full_at.put(key, max(full_at, self._full_at.get(key) or 0.0))

    def take(self, key: Key, cost: float = 1.0) -> float:
        """Consume tokens if the bucket holds them, and return 0; otherwise return the seconds until it does."""
        wait = self.wait(key, cost)
        if not wait:
            self.add(key, cost)
        return wait
