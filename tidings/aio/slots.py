"""Slots for work of which a bounded number may be done at the same time; the bound can change."""

from __future__ import annotations

import asyncio
import collections
import math


class SlotsExhausted(Exception):
    """The oldest waiter has already waited too long for a slot."""


class Slots:
    """Bounded number of slots. Without a free slot, callers wait in order of arrival.

    When the oldest waiter has waited more than `max_wait` seconds, new ones are refused.
    """

    def __init__(self, limit: int = 1, *, max_wait: float = math.inf) -> None:
        self._limit = limit
        self._max_wait = max_wait
        self._taken = 0
        # Waiters with the event-loop time of their arrival.
        self._waiting: collections.deque[tuple[float, asyncio.Future[None]]] = collections.deque()

    @property
    def limit(self) -> int:
        return self._limit

    def resize(self, limit: int) -> None:
        """Change the number of slots; work in progress continues."""
        self._limit = limit
        self._wake()

    def is_overloaded(self, delay: float = 0.0) -> bool:
        """Return whether a caller that arrives in `delay` seconds would be refused."""
        self._drop_gone()
        now = asyncio.get_running_loop().time()
        return bool(self._waiting) and now - self._waiting[0][0] + delay > self._max_wait

    def try_take(self) -> bool:
        """Take a slot if one is free and nothing waits for it. Returns whether it was taken."""
        if self._taken >= self._limit or self._waiting:
            return False
        self._taken += 1
        return True

    async def take(self) -> None:
        """Wait for a slot and take it. Raises `SlotsExhausted`."""
        if self.try_take():
            return
        if self.is_overloaded():
            raise SlotsExhausted
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.append((loop.time(), waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Release a slot."""
        self._taken -= 1
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        self._drop_gone()
        while self._waiting and self._taken < self._limit:
            _, waiter = self._waiting.popleft()
            self._taken += 1
            waiter.set_result(None)
            self._drop_gone()

    def _drop_gone(self) -> None:
        """Remove cancelled waiters from the front of the queue."""
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()
