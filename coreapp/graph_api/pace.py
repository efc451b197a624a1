"""Pace of the posts of one number: rate, posts in flight, back-off, and the stop after a fault of the credentials."""

from __future__ import annotations

import math
from collections.abc import Callable

from tidings.aio.clock import Clock
from tidings.aio.token_buckets import RateLimit

# Delays after consecutive refusals: 1, 4, 16 and 64 s.
BACKOFF_BASE, MAX_BACKOFF = 4.0, 64.0
# Seconds between two attempts of a stopped number whose credentials were not replaced.
RETRY_STOPPED_SECONDS = 60.0
# Burst, as a part of the messages per second.
BURST_SHARE = 0.1


def backoff(failures: int) -> float:
    """Return the seconds to wait after this number of consecutive failures, at least 1."""
    return float(min(MAX_BACKOFF, BACKOFF_BASE ** min(failures - 1, 3)))


class UpstreamPace:
    """Permits for posts of one number, shared by its shards in this process.

    After a failure of the number one post at a time is permitted until one succeeds.
    """

    def __init__(self, clock: Clock, *, limit: int) -> None:
        """limit: posts in flight"""
        self._clock = clock
        self._limit = limit
        self._rate = RateLimit(0.0, 1.0)
        self._full_at = 0.0
        self._failures = 0
        self._blocked_until = -math.inf  # monotonic time
        self._wakes: list[Callable[[], None]] = []
        self.in_flight = 0
        self.fault = ""  # reason why the number is stopped; empty while it works

    def set_rate(self, rate: float) -> None:
        """Set the posts per second in this process."""
        self._rate = RateLimit(1.0 / rate, max(1.0, rate * BURST_SHARE)) if rate else RateLimit(0.0, 1.0)

    def on_permit(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Register `wake` to be called when a post may be permitted again. Returns a function that ends this."""
        self._wakes.append(wake)
        return lambda: self._wakes.remove(wake)

    def admit(self) -> float:
        """Permit one post, which must be released, and return 0.0.

        Otherwise return the seconds to wait; infinite to wait for `wake`.
        """
        now = self._clock.monotonic()
        if now < self._blocked_until:
            return self._blocked_until - now
        if self.in_flight >= (1 if self._failures else self._limit):
            return math.inf
        wait = self._rate.wait(self._full_at, now, 1.0)
        if wait > 0:
            return wait
        self._full_at = self._rate.consume(self._full_at, now, 1.0)
        self.in_flight += 1
        return 0.0

    def release(self) -> None:
        """Release the permit of a post that has ended."""
        self.in_flight -= 1
        # The list may change while it is iterated.
        for wake in list(self._wakes):
            wake()

    def refund(self) -> None:
        """Return the permit of a post that is not made, in the event-loop iteration that admitted it."""
        self.in_flight -= 1
        self._full_at = self._rate.consume(self._full_at, self._clock.monotonic(), -1.0)

    def succeeded(self) -> bool:
        """Record that the Cloud API has accepted or refused a message. Returns whether the number was stopped."""
        was_stopped, self.fault = bool(self.fault), ""
        self._failures = 0
        return was_stopped

    def delayed(self, seconds: float = 0.0) -> float:
        """Record that the Cloud API accepts nothing of the number now. Returns the seconds of the back-off.

        seconds: least time to wait
        """
        now = self._clock.monotonic()
        if now >= self._blocked_until:
            # Posts that were in flight at the same time count once.
            self._failures += 1
        wait = max(backoff(self._failures), seconds)
        self._blocked_until = max(self._blocked_until, now + wait)
        return wait

    def stop(self, fault: str) -> bool:
        """Stop the number, apart from an attempt every `RETRY_STOPPED_SECONDS`. Returns whether it worked before."""
        is_new, self.fault = not self.fault, fault
        self._failures = max(self._failures, 1)
        self._blocked_until = self._clock.monotonic() + RETRY_STOPPED_SECONDS
        return is_new

    def resume(self) -> None:
        """Permit a post now, because the credentials were replaced."""
        self._blocked_until = -math.inf
        for wake in list(self._wakes):
            wake()
