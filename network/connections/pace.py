"""Pace of frames that do nothing: one token bucket for each connection."""

from __future__ import annotations

# Tokens a second, and at once.
RATE, BURST = 100.0, 1000.0


class Pace:
    """Tokens for pings, for frames that are answered with a refusal, and for acknowledgements of nothing."""

    __slots__ = ("_burst", "_full_at", "_rate")

    def __init__(self, rate: float = RATE, burst: float = BURST) -> None:
        self._rate = rate
        self._burst = burst
        # Loop time at which the bucket is full again.
        self._full_at = 0.0

    def take(self, now: float, cost: float = 1.0) -> float:
        """Take tokens, also such as are not there yet; returns the seconds until they are."""
        self._full_at = max(now, self._full_at) + cost / self._rate
        return max(0.0, self._full_at - now - self._burst / self._rate)
