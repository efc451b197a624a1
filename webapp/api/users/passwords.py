"""Password hashing with argon2 in separate threads."""

from __future__ import annotations

from prometheus_client import Counter

from tidings.secrets import hash_pool
from tidings.secrets.hash_pool import HashPool, HashPoolFull
from webapp.http.errors import Overloaded

CHECKS = Counter("tidings_password_checks_total", "Passwords hashed for a comparison")


class Hasher:
    """Password hashing in a `HashPool`. A flood of requests is refused with `Overloaded`."""

    def __init__(self, *, threads: int = 2, max_waiting: int = 64, memory_kib: int = hash_pool.MEMORY_KIB) -> None:
        self._pool = HashPool(threads=threads, max_waiting=max_waiting, memory_kib=memory_kib)

    async def hash(self, password: str) -> str:
        """Return the hash to store. Raises `Overloaded`."""
        try:
            return await self._pool.hash(password)
        except HashPoolFull:
            raise _overloaded() from None

    async def verify(self, password_hash: str, password: str) -> bool:
        """Return whether the password matches the hash. Raises `Overloaded`."""
        CHECKS.inc()
        try:
            return await self._pool.verify(password_hash, password)
        except HashPoolFull:
            raise _overloaded() from None

    def close(self) -> None:
        """Accept no more work. Running computations complete."""
        self._pool.close()


def _overloaded() -> Overloaded:
    return Overloaded("too many logins are in progress")
