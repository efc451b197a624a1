"""Deadline that moves often and passes seldom."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Deadline:
    """Calls `passed` at the event-loop time `at`; never while that is infinite.

    The timer fires at or before `at` and is started again then, so that moving the deadline with each request needs no
    timer per request.
    """

    __slots__ = ("_fires_at", "_loop", "_passed", "_timer", "at")

    def __init__(self, passed: Callable[[], None]) -> None:
        self.at = math.inf
        self._loop = asyncio.get_running_loop()
        self._passed = passed
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = math.inf

    def set(self, seconds: float) -> None:
        """Move the deadline to `seconds` from now."""
        self.at = self._loop.time() + seconds
        if self.at < self._fires_at:
            if self._timer is not None:
                self._timer.cancel()
            self._fires_at = self.at
            self._timer = self._loop.call_later(seconds, self._check)

    def cancel(self) -> None:
        """Release the timer."""
        self.at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer, self._fires_at = None, math.inf
        left = self.at - self._loop.time()
        if left <= 0:
            self.at = math.inf
            self._passed()
        elif left != math.inf:
            self.set(left)
