"""Limits on calls per event-loop iteration, and on refusals per second."""

from __future__ import annotations

import asyncio
import collections
import math
from collections.abc import Callable

# Requests dispatched per event-loop iteration: a few milliseconds of work.
EACH = 16
# Calls that may wait: half a second of work, a second in a flood.
WAITING = 1_000
# Refusals per second, and seconds between two groups of them. Each costs server and client time that accepted requests
# need: with 2,000 per second a flood completes a quarter less.
REFUSALS, INTERVAL = 600, 0.01
# Largest group of refusals when few new ones arrive, as a multiple of the first group.
MOST = 16
# Result of a call that was cancelled; it does not count as made.
CANCELLED = object()


class Cancellable:
    """A call that can be cancelled before it is made; a cancelled one holds no references."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call

    def __call__(self) -> object:
        call, self._call = self._call, None
        return CANCELLED if call is None else call()

    def cancel(self) -> None:
        """Cancel the call. Without effect after it was made."""
        self._call = None


class DispatchLimit:
    """Makes calls in order, a bounded number per event-loop iteration.

    An event loop that is given a thousand things at once does all of them before it polls for I/O. With this limit it
    polls in between, so other work waits for a few calls only.
    """

    def __init__(self, each: int = EACH, waiting: float = WAITING, interval: float = 0.0) -> None:
        """each: calls per iteration. waiting: calls that may wait. interval: seconds between groups, 0 for none."""
        self._each = each
        self._most = waiting
        self._interval = interval
        self._made = 0
        # Calls with the event-loop time of their arrival.
        self._waiting: collections.deque[tuple[float, Callable[[], object]]] = collections.deque()

    def __len__(self) -> int:
        """Return the number of waiting calls."""
        return len(self._waiting)

    @property
    def delay(self) -> float:
        """Seconds that the oldest call has waited; 0 when none waits."""
        return asyncio.get_running_loop().time() - self._waiting[0][0] if self._waiting else 0.0

    def take(self, call: Callable[[], object]) -> bool:
        """Make the call now or in a later iteration. Returns false, and drops it, when too many wait already."""
        if self._waiting or self._made >= self._each:
            if len(self._waiting) >= self._most:
                return False
            self._waiting.append((asyncio.get_running_loop().time(), call))
            return True
        if not self._made:
            self._schedule_next()
        self._made += 1
        call()
        return True

    def _schedule_next(self) -> None:
        loop = asyncio.get_running_loop()
        if self._interval:
            loop.call_later(self._interval, self._next)
        else:
            loop.call_soon(self._next)

    def _next(self) -> None:
        self._made = 0
        if self._waiting:
            self._schedule_next()
            while self._waiting and self._made < self._each:
                # Counted even if it raises.
                self._made += 1
                _, call = self._waiting.popleft()
                if call() is CANCELLED:
                    self._made -= 1


class RefusalLimit(DispatchLimit):
    """Makes calls in order, at most `rate` per second while new ones arrive.

    A refused client retries as soon as it gets its refusal. Refusing 10,000 of them at once would take all the time
    that other clients need, whereas a client that waits for its refusal costs nothing. Waiting calls are bounded by the
    number of connections. A cancelled `Cancellable`, whose client has disconnected, does not count towards the rate.
    Once fewer than a quarter as many calls arrive as are made, the backlog is cleared faster: each group is twice the
    one before it, up to `MOST` times the first.
    """

    def __init__(self, rate: float = REFUSALS) -> None:
        self._least = max(1, round(rate * INTERVAL))
        self._came = 0
        super().__init__(self._least, math.inf, INTERVAL)

    def take(self, call: Callable[[], object]) -> bool:
        self._came += 1
        return super().take(call)

    def _next(self) -> None:
        is_over = self._waiting and 4 * self._came < self._made
        self._each = min(2 * self._each, MOST * self._least) if is_over else self._least
        self._came = 0
        super()._next()
