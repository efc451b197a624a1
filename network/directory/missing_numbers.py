"""Numbers that checked for unregistered numbers, to be notified when these register."""

from __future__ import annotations

from collections.abc import Iterable

from tidings.aio.lru import LRU

# Numbers remembered, about 200 bytes each, and askers of each. Further askers, and those that asked a process which has
# ended since, find out at their next check.
REMEMBERED = 50_000
ASKERS = 8

_NOBODY: frozenset[str] = frozenset()


class MissingNumbers:
    """Askers of numbers that are not in the directory, in memory only."""

    def __init__(self) -> None:
        self._askers: LRU[str, frozenset[str]] = LRU(REMEMBERED)

    def asked(self, asker: str, numbers: Iterable[str]) -> None:
        """Record a check. Call it before the directory is read, so that a number registering during the read is found
        or announced.
        """
        for number in numbers:
            askers = self._askers.get(number) or _NOBODY
            if len(askers) < ASKERS:
                self._set(number, askers | {asker})

    def found(self, asker: str, numbers: Iterable[str]) -> None:
        """Remove the asker of these numbers, which the check has found in the directory."""
        for number in numbers:
            self._set(number, (self._askers.get(number) or _NOBODY) - {asker})

    def take(self, numbers: Iterable[str]) -> list[tuple[str, str]]:
        """Return and remove the pairs (number, asker) of these numbers, which are now registered."""
        pairs = [(number, asker) for number in numbers for asker in sorted(self._askers.get(number) or _NOBODY)]
        for number, _ in pairs:
            self._askers.drop(number)
        return pairs

    def _set(self, number: str, askers: frozenset[str]) -> None:
        if askers:
            self._askers.put(number, askers)
        else:
            self._askers.drop(number)
