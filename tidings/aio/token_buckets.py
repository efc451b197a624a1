"""Rate limits: token buckets, one at a time or one per key."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Generic, TypeVar

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU

Key = TypeVar("Key", bound=Hashable)
Time = TypeVar("Time", int, float)


@dataclasses.dataclass(frozen=True, slots=True)
class RateLimit(Generic[Time]):
    """Rate limit: `burst` tokens at once, then one token per `interval`.

    The state of a bucket is one number, which the caller keeps: `full_at`, the time at which the bucket is full again.
    Any time in the past, such as 0, is the state of a full bucket.
    """

    # Time between two tokens, in the unit of the caller's clock; 0 is unlimited.
    interval: Time
    burst: Time

    def wait(self, full_at: Time, now: Time, cost: Time = 1) -> Time:
        """Return the time until the bucket holds `cost` tokens; with a cost of 0, until no consumed token is owed."""
        missing = (self.burst - cost) * -self.interval
        if full_at > now:
            missing += full_at - now
        return missing if missing > 0 else 0

    def consume(self, full_at: Time, now: Time, cost: Time = 1) -> Time:
        """Return the state after `cost` tokens were consumed, also ones not there yet; a negative cost refunds them."""
        return (full_at if full_at > now else now) + cost * self.interval

    def bound(self, full_at: Time, now: Time) -> Time:
        """Return a stored state, at most that of an empty bucket: a host with a wrong clock may have stored it."""
        return min(full_at, now + self.burst * self.interval)


class TokenBuckets(Generic[Key]):
    """Token bucket per key.

    The `remembered` most recently used keys whose buckets are not full are kept, at about 200 bytes each.
    """

    def __init__(self, clock: Clock, *, rate: float, burst: float, remembered: int) -> None:
        """rate: tokens per second, 0 is unlimited. burst: tokens of a full bucket. remembered: keys."""
        self._clock = clock
        self._rate = RateLimit(1.0 / rate if rate else 0.0, max(burst, 1.0))
        self._full_at: LRU[Key, float] = LRU(remembered)

    def __len__(self) -> int:
        return len(self._full_at)

    def wait(self, key: Key, cost: float = 1.0) -> float:
        """Return the seconds until the bucket holds `cost` tokens, or is full."""
        rate = self._rate
        wait = rate.wait(self._full_at.get(key) or 0.0, self._clock.monotonic(), min(cost, rate.burst))
        # Rounded to microseconds: less is a rounding error.
        return round(wait, 6)

    def add(self, key: Key, cost: float = 1.0) -> None:
        """Consume tokens, also ones that are not there yet; a negative cost refunds them."""
        now = self._clock.monotonic()
        full_at = self._rate.consume(self._full_at.get(key) or 0.0, now, cost)
        if full_at > now:
            self._full_at.put(key, full_at)
        else:
            self._full_at.pop(key)

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
