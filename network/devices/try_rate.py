"""Rate limit of wrong tries of a secret: a token bucket whose single number is stored in the database."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class TryRate:
    """Token bucket: `burst` wrong tries at once, then one per `interval_ms`.

    Its state is `full_at`, the Unix milliseconds at which it is full again. A stored state further in the future than
    that of an empty bucket, written by a host with a wrong clock, counts as an empty bucket.
    """

    interval_ms: int
    burst: int

    def wait_ms(self, full_at: int, now: int) -> int:
        """Return the milliseconds until a try is allowed, 0 when one is allowed now."""
        return max(0, self.spend(full_at, now) - now - self.burst * self.interval_ms)

    def spend(self, full_at: int, now: int) -> int:
        """Return the state after one wrong try."""
        empty = now + self.burst * self.interval_ms
        return min(max(full_at, now), empty) + self.interval_ms

    def refund(self, full_at: int) -> int:
        """Return the state after a counted try turned out to be right."""
        return full_at - self.interval_ms
