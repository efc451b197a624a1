"""Clock that tests move."""

from __future__ import annotations

from tidings.aio.clock import Clock


class ManualClock(Clock):
    """Clock that stands still until `advance` or `jump`."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both readings forward by `seconds`."""
        self._now += seconds
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock ahead, or back if `seconds` is negative."""
        self._now += seconds
