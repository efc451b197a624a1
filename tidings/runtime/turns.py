"""What a loop begins in one of its turns: so much, however much is there to begin."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable

# Requests that are begun in one turn of the loop: a few milliseconds of work.
EACH = 16


class Turns:
    """Calls in their order, of which each turn of the loop makes so many.

    A loop that is given a thousand things at once does all of them before it looks at what came meanwhile; here it
    looks in between, and what does not come this way waits for a few of them only.
    """

    def __init__(self, each: int = EACH) -> None:
        self._each = each
        self._made = 0
        self._waiting: collections.deque[Callable[[], None]] = collections.deque()

    def __len__(self) -> int:
        """Calls that wait."""
        return len(self._waiting)

    def take(self, call: Callable[[], None]) -> None:
        """Make the call now, or in one of the next turns."""
        if self._waiting or self._made >= self._each:
            self._waiting.append(call)
            return
        if not self._made:
            asyncio.get_running_loop().call_soon(self._next)
        self._made += 1
        call()

    def _next(self) -> None:
        self._made = 0
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
            while self._waiting and self._made < self._each:
                self._made += 1
                self._waiting.popleft()()
