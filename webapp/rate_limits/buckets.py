"""A token bucket: how many requests of one kind are let through a second."""

from __future__ import annotations

import math

from tidings.runtime.clock import Clock


class TokenBucket:
    """Holds at most `burst` tokens and gains `rate` a second; a rate of 0 lets everything through."""

    __slots__ = ("_burst", "_clock", "_filled_at", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, clock: Clock, *, tokens: float = math.inf) -> None:
        """tokens: that it has at first; full otherwise."""
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._tokens = min(tokens, self._burst)
        self._filled_at = clock.monotonic()

    def take(self) -> float:
        """Take one token: 0.0 when there was one, otherwise the seconds until there will be."""
        if not self._rate:
            return 0.0
        now = self._clock.monotonic()
        tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if tokens >= 1.0:
            self._tokens = tokens - 1.0
            return 0.0
        self._tokens = tokens
        return (1.0 - tokens) / self._rate


def retry_after(seconds: float) -> int:
    """Whole seconds, at least 1, for the header."""
    return max(1, math.ceil(seconds))
