"""What a loop begins in one of its turns: so much, however much is there to begin; and how fast it says no."""

from __future__ import annotations

import asyncio
import collections
import math
from collections.abc import Callable

# Requests that are begun in one turn of the loop: a few milliseconds of work.
EACH = 16
# Those that may wait: half a second of work, a second in a flood.
WAITING = 1_000
# Refusals a second, which take a sixth of a core, and seconds between two groups of them.
REFUSALS, PACE = 2_000, 0.01
# Times as many refusals, at most, when nobody new comes.
MOST = 16
# What a call returns that was not wanted any more; it does not count as made.
CANCELLED = object()


class Cancellable:
    """A call that may not be wanted any more when its turn comes; nothing of it is kept then."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call

    def __call__(self) -> object:
        call, self._call = self._call, None
        return CANCELLED if call is None else call()

    def cancel(self) -> None:
        """It is not wanted any more. Without effect on one that was made."""
        self._call = None


class Turns:
    """Calls in their order, of which each turn of the loop makes so many.

    A loop that is given a thousand things at once does all of them before it looks at what came meanwhile; here it
    looks in between, and what does not come this way waits for a few of them only.
    """

    def __init__(self, each: int = EACH, waiting: float = WAITING, pace: float = 0.0) -> None:
        """waiting: calls that may wait; pace: seconds between two turns, where they are not the loop's own."""
        self._each = each
        self._most = waiting
        self._pace = pace
        self._made = 0
        # With the loop's time of their coming.
        self._waiting: collections.deque[tuple[float, Callable[[], object]]] = collections.deque()

    def __len__(self) -> int:
        """Calls that wait."""
        return len(self._waiting)

    @property
    def delay(self) -> float:
        """Seconds that the first of them has waited."""
        return asyncio.get_running_loop().time() - self._waiting[0][0] if self._waiting else 0.0

    def take(self, call: Callable[[], object]) -> bool:
        """Make the call now, or in one of the next turns; false, and never, when too many wait already."""
        if self._waiting or self._made >= self._each:
            if len(self._waiting) >= self._most:
                return False
            self._waiting.append((asyncio.get_running_loop().time(), call))
            return True
        if not self._made:
            self._await_turn()
        self._made += 1
        call()
        return True

    def _await_turn(self) -> None:
        loop = asyncio.get_running_loop()
        if self._pace:
            loop.call_later(self._pace, self._next)
        else:
            loop.call_soon(self._next)

    def _next(self) -> None:
        self._made = 0
        if self._waiting:
            self._await_turn()
            while self._waiting and self._made < self._each:
                # Whatever becomes of it.
                self._made += 1
                _, call = self._waiting.popleft()
                if call() is CANCELLED:
                    self._made -= 1


class Refusals(Turns):
    """Calls in their order, at most so many a second while there are new ones.

    A client that is refused comes again, and as soon as it is refused. Ten thousand of them who are told at once take
    all the time that there is for others; who is kept waiting for his refusal costs nothing. Those that wait are
    bounded by the connections that there may be; of whoever goes away, a `Cancellable` leaves nothing but its place,
    which costs no turn. When nobody comes any more, there is no reason to keep them waiting:
    each group is twice the one before it.
    """

    def __init__(self, rate: float = REFUSALS) -> None:
        self._least = max(1, round(rate * PACE))
        self._came = False
        super().__init__(self._least, math.inf, PACE)

    def take(self, call: Callable[[], object]) -> bool:
        self._came = True
        return super().take(call)

    def _next(self) -> None:
        is_over = self._waiting and not self._came
        self._each = min(2 * self._each, MOST * self._least) if is_over else self._least
        self._came = False
        super()._next()
