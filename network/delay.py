"""Delay of a distant network: each call is put off by a random time, without one waiting for another."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Hashable


class Delay:
    """Calls put off by a time between `low` and `high` seconds. Calls of one key stay in order.

    Not bounded by itself: `waiting` says how many there are, and the caller refuses more.
    """

    def __init__(self, low: float, high: float) -> None:
        self._low = low
        self._high = high
        self._calls: list[tuple[float, int, Hashable, Callable[[], None]]] = []
        self._counter = itertools.count()
        # When the last call of a key that still waits is due, and how many of it wait.
        self._last: dict[Hashable, tuple[float, int]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def active(self) -> bool:
        """Is there any delay at all?"""
        return self._high > 0

    @property
    def waiting(self) -> int:
        """Calls that are put off."""
        return len(self._calls)

    async def sleep(self) -> None:
        """For callers that can wait themselves."""
        if self.active:
            await asyncio.sleep(self._seconds())

    def call(self, key: Hashable, call: Callable[[], None]) -> None:
        """Make a call later, and not before an earlier one of the same key."""
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
