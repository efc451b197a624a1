"""Clocks as a parameter, so that tests can control the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock, for times that others see, and a monotonic clock, for durations."""

    def now(self) -> float:
        """Return the Unix time in seconds."""

    def now_ms(self) -> int:
        """Return the Unix time in milliseconds."""
        return int(self.now() * 1000)

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start; never decreases."""

    def monotonic_at(self, moment: int, *, longest: float) -> float:
        """Return the monotonic time of a moment to wait for. A wait beyond `longest` comes from a clock that was ahead.

        moment: Unix milliseconds
        longest: seconds
        """
        return self.monotonic() + min(max(0.0, moment / 1000 - self.now()), longest)

    def monotonic_of(self, moment: int, *, now: int | None = None) -> float:
        """Return the monotonic time of an event, whose age counts from there; the present for a future moment.

        moment: Unix milliseconds
        now: present time, Unix milliseconds; None for that of this clock
        """
        return self.monotonic() - max(0.0, (self.now() if now is None else now / 1000) - moment / 1000)


class SystemClock(Clock):
    """Clocks of the machine."""

    # Without a method around them: a status reads them six times.
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
