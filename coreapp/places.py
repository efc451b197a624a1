"""Places for what may be done at the same time, however many parts of the process do it; how many can change."""

from __future__ import annotations

import asyncio
import collections


class Places:
    """As many as `limit`. Whoever finds none waits, in the order of coming."""

    def __init__(self, limit: int = 1) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()

    def resize(self, limit: int) -> None:
        """From now on so many; what is being done already goes on."""
        self._limit = limit
        self._wake()

    def try_take(self) -> bool:
        """Take one if there is one for whoever comes now."""
        if self._taken >= self._limit or self._waiting:
            return False
        self._taken += 1
        return True

    async def take(self) -> None:
        """Wait for one."""
        if self.try_take():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give_back()
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            raise

    def give_back(self) -> None:
        """It is done."""
        self._taken -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._taken < self._limit:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._taken += 1
                waiter.set_result(None)
