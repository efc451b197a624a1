"""Token bucket that limits the requests of one kind per second."""

from __future__ import annotations

import math

from tidings.aio.clock import Clock


class TokenBucket:
    """Token bucket that holds at most `burst` tokens and gains `rate` tokens per second. A rate of 0 is unlimited."""

    __slots__ = ("_burst", "_clock", "_filled_at", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, clock: Clock, *, tokens: float = math.inf) -> None:
        """Create a bucket.

        tokens: number that it holds at first; full by default
        """
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._tokens = min(tokens, self._burst)
        self._filled_at = clock.monotonic()

    @property
    def tokens(self) -> float:
        """Return the number of tokens that it holds."""
        passed = self._clock.monotonic() - self._filled_at
        return min(self._burst, self._tokens + passed * self._rate)

    def take(self) -> float:
        """Take one token. Returns 0.0 on success, otherwise the seconds until a token will be available."""
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
    """Round up to whole seconds, at least 1, for the `Retry-After` header."""
    return max(1, math.ceil(seconds))
