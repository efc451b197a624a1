"""Places for what may be done at the same time, however many parts of the process do it; how many can change."""

from __future__ import annotations

import asyncio
import collections
import math


class Crowded(Exception):
    """Others have waited for a place for too long already."""


class Places:
    """As many as `limit`. Whoever finds none waits, in the order of coming, unless the first who waits has waited for
    more than `patience` seconds."""

    def __init__(self, limit: int = 1, *, patience: float = math.inf) -> None:
        self._limit = limit
        self._patience = patience
        self._taken = 0
        # With the loop's time of their coming.
        self._waiting: collections.deque[tuple[float, asyncio.Future[None]]] = collections.deque()

    def resize(self, limit: int) -> None:
        """From now on so many; what is being done already goes on."""
        self._limit = limit
        self._wake()

    def is_crowded(self, delay: float = 0.0) -> bool:
        """Would whoever has to wait now be turned away? delay: seconds that he has to wait before he comes here."""
        self._forget_gone()
        now = asyncio.get_running_loop().time()
        return bool(self._waiting) and now - self._waiting[0][0] + delay > self._patience

    def try_take(self) -> bool:
        """Take one if there is one for whoever comes now."""
        if self._taken >= self._limit or self._waiting:
            return False
        self._taken += 1
        return True

    async def take(self) -> None:
        """Wait for one. Raises `Crowded`."""
        if self.try_take():
            return
        if self.is_crowded():
            raise Crowded
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append((loop.time(), waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """It is done."""
        self._taken -= 1
        self._wake()

    def _wake(self) -> None:
        self._forget_gone()
        while self._waiting and self._taken < self._limit:
            _, waiter = self._waiting.popleft()
            self._taken += 1
            waiter.set_result(None)
            self._forget_gone()

    def _forget_gone(self) -> None:
        """The first who waits, if anybody does, is somebody who still does."""
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()
