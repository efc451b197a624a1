"""Argon2 hashes of secrets that people choose, computed on dedicated threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import argon2

Value = TypeVar("Value")

# OWASP's first choice for argon2id: 19 MiB, 2 passes, 1 lane; some 20 ms.
MEMORY_KIB, _PASSES, _LANES = 19 * 1024, 2, 1


class HashPoolFull(Exception):
    """Too many hashes wait to be computed: try again later."""


class HashPool:
    """Argon2 off the event loop.

    At most `threads` hashes are computed at a time, and at most `max_waiting` wait for a thread. One more raises
    `HashPoolFull`, so that a flood of guesses costs bounded memory and time.
    """

    def __init__(self, *, threads: int = 2, max_waiting: int = 64, memory_kib: int = MEMORY_KIB) -> None:
        self._argon2 = argon2.PasswordHasher(time_cost=_PASSES, memory_cost=memory_kib, parallelism=_LANES)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="argon2")
        self._limit = threads + max_waiting
        self._pending = 0

    async def hash(self, secret: str) -> str:
        """Return the text to store. Raises `HashPoolFull`."""
        return await self._run(lambda: self._argon2.hash(secret))

    async def verify(self, stored: str, secret: str) -> bool:
        """Return whether this is the secret of a stored text. Raises `HashPoolFull`."""
        return await self._run(lambda: self._matches(stored, secret))

    def close(self) -> None:
        """Accept no more work; hashes in progress complete on their own."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _matches(self, stored: str, secret: str) -> bool:
        try:
            return self._argon2.verify(stored, secret)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False

    async def _run(self, work: Callable[[], Value]) -> Value:
        if self._pending >= self._limit:
            raise HashPoolFull
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._pending -= 1
