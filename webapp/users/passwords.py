"""Hashing passwords with argon2 on threads of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import argon2
from prometheus_client import Counter

from webapp.errors import Overloaded

Value = TypeVar("Value")

CHECKS = Counter("tidings_password_checks_total", "Passwords that were hashed to compare them")

# OWASP's first choice for argon2id: 19 MiB, 2 passes, 1 lane; some 20 ms.
_MEMORY_KIB, _PASSES, _LANES = 19 * 1024, 2, 1


class Hasher:
    """argon2 off the event loop.

    At most `threads` hashes are computed at a time and `max_waiting` wait for a thread; one more is refused with
    `Overloaded`, so that a flood of guesses costs bounded memory and time.
    """

    def __init__(self, *, threads: int = 2, max_waiting: int = 64, memory_kib: int = _MEMORY_KIB) -> None:
        self._argon2 = argon2.PasswordHasher(time_cost=_PASSES, memory_cost=memory_kib, parallelism=_LANES)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="argon2")
        self._limit = threads + max_waiting
        self._pending = 0

    async def hash(self, password: str) -> str:
        """The text to store. Raises `Overloaded`."""
        return await self._run(lambda: self._argon2.hash(password))

    async def verify(self, password_hash: str, password: str) -> bool:
        """Is it the password of this hash? Raises `Overloaded`."""
        CHECKS.inc()
        return await self._run(lambda: self._matches(password_hash, password))

    def close(self) -> None:
        """Take no more; what is being computed ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _matches(self, password_hash: str, password: str) -> bool:
        try:
            return self._argon2.verify(password_hash, password)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False

    async def _run(self, work: Callable[[], Value]) -> Value:
        if self._pending >= self._limit:
            raise Overloaded("too many logins are being checked")
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._pending -= 1
