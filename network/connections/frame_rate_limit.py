"""Rate limit of frames without effect: one token bucket per connection."""

from __future__ import annotations

# Tokens per second, and tokens at once.
RATE, BURST = 100.0, 1000.0


class FrameRateLimit:
    """Token bucket for pings, refused frames and acknowledgements of unknown deliveries."""

    __slots__ = ("_burst", "_full_at", "_rate")

    def __init__(self, rate: float = RATE, burst: float = BURST) -> None:
        self._rate = rate
        self._burst = burst
        # Loop time at which the bucket is full again.
        self._full_at = 0.0

    def take(self, now: float, cost: float = 1.0) -> float:
        """Consume tokens, on credit if necessary; return the seconds until they are available."""
        self._full_at = max(now, self._full_at) + cost / self._rate
        return max(0.0, self._full_at - now - self._burst / self._rate)
