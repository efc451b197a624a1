"""Simulated latency of a distant network: each call is delayed by a random time, independently of the others."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Hashable


class Delay:
    """Calls delayed by a random time between `low` and `high` seconds. Calls with the same key stay in order.

    The number of delayed calls is not bounded here: callers check `waiting` and refuse more.
    """

    def __init__(self, low: float, high: float) -> None:
        # Whether calls are delayed at all.
        self.active = high > 0
        self._low = low
        self._high = high
        self._calls: list[tuple[float, int, Hashable, Callable[[], None]]] = []
        self._counter = itertools.count()
        # Per key: the loop time at which its last delayed call is due, and the number of its delayed calls.
        self._last: dict[Hashable, tuple[float, int]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Return the number of delayed calls."""
        return len(self._calls)

    async def sleep(self) -> None:
        """Sleep for a random delay; for callers that can wait themselves."""
        if self.active:
            await asyncio.sleep(self._seconds())

    def call(self, key: Hashable, call: Callable[[], None]) -> None:
        """Make a call after a random delay, and not before an earlier call with the same key."""
        loop = asyncio.get_running_loop()
        last, count = self._last.get(key, (0.0, 0))
        due = max(last, loop.time() + self._seconds())
        self._last[key] = due, count + 1
        heapq.heappush(self._calls, (due, next(self._counter), key, call))
        if self._calls[0][0] == due:
            self._set_timer(loop)

    def _seconds(self) -> float:
        return random.uniform(self._low, self._high)  # noqa: S311

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._calls[0][0], self._run)

    def _run(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._calls and self._calls[0][0] <= loop.time():
            _, _, key, call = heapq.heappop(self._calls)
            last, count = self._last[key]
            if count == 1:
                del self._last[key]
            else:
                self._last[key] = last, count - 1
            call()
        if self._calls and self._timer is None:
            self._set_timer(loop)
