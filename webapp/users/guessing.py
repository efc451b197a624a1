"""A brake on guessing passwords: answers to wrong ones are held back, the longer the more of them there were.

A right password is never held back. Only one address's guesses at a time are limited in number, and an address that
has logged in as that user before is exempt.
"""

from __future__ import annotations

from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU

# Wrong passwords that cost nothing, the first delay and the longest one in seconds.
FREE_FAILURES = 3
FIRST_DELAY = 0.25
LONGEST_DELAY = 5.0
# Seconds without a wrong password after which the earlier ones are forgotten.
MEMORY = 900.0
# Guesses of one address that may be unanswered at a time.
MAX_OPEN = 8

_LIMIT = 10_000


class Guessing:
    """Counts wrong passwords for each account and each address; it knows the `_LIMIT` latest of either."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, LRU[str, tuple[int, float]]] = {"account": LRU(_LIMIT), "address": LRU(_LIMIT)}
        self._known: LRU[tuple[str, str], bool] = LRU(_LIMIT)
        self._open: dict[str, int] = {}

    def begin(self, username: str, address: str) -> bool:
        """A password will be checked; false when this address has too many unanswered. Pair it with `end`."""
        unanswered = self._open.get(address, 0)
        if unanswered >= MAX_OPEN and self._count("address", address) and (username, address) not in self._known:
            return False
        self._open[address] = unanswered + 1
        return True

    def end(self, address: str) -> None:
        """The check was answered."""
        left = self._open[address] - 1
        if left:
            self._open[address] = left
        else:
            del self._open[address]

    def succeeded(self, username: str, address: str) -> None:
        """The password was right."""
        self._known.put((username, address), True)
        self._failures["address"].drop(address)

    def failed(self, username: str, address: str) -> float:
        """The password was wrong; returns the seconds to hold the answer back."""
        now = self._clock.monotonic()
        worst = 0
        for kind, key in (("account", username), ("address", address)):
            count = self._count(kind, key) + 1
            self._failures[kind].put(key, (count, now))
            worst = max(worst, count)
        if worst <= FREE_FAILURES:
            return 0.0
        return float(min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(worst - FREE_FAILURES - 1, 30)))

    def _count(self, kind: str, key: str) -> int:
        count, when = self._failures[kind].get(key) or (0, 0.0)
        return count if self._clock.monotonic() - when < MEMORY else 0
