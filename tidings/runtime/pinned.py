"""A cache whose entries can be pinned: whoever works with one keeps it in memory, whatever the limit says."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from tidings.runtime.lru import LRU


class Entry:
    """Entry of a `PinnedCache` for one key; subclasses add the value. pins: counted by the cache alone."""

    __slots__ = ("pins",)

    pins: int

    def is_known(self) -> bool:
        """Is there something to remember once nobody has it pinned?"""
        raise NotImplementedError


Key = TypeVar("Key", bound=Hashable)
Held = TypeVar("Held", bound=Entry)


class PinnedCache(Generic[Key, Held]):
    """Entries counted by reference, over the `limit` others that were used last.

    pinned: the entries of pinned keys, for look-ups; whoever pins sees to it that they are bounded.
    """

    def __init__(self, make: Callable[[], Held], limit: int) -> None:
        """make: an entry of which nothing is known yet."""
        self.pinned: dict[Key, Held] = {}
        self._make = make
        self._others: LRU[Key, Held] = LRU(limit)

    def pin(self, keys: Iterable[Key]) -> None:
        """Keep one entry for each of these keys until as many `unpin`."""
        for key in keys:
            entry = self.pinned.get(key)
            if entry is None:
                self.pinned[key] = entry = self._others.pop(key) or self._make()
                entry.pins = 1
            else:
                entry.pins += 1

    def unpin(self, keys: Iterable[Key]) -> None:
        """Take one pin of each back."""
        for key in keys:
            entry = self.pinned[key]
            entry.pins -= 1
            if not entry.pins:
                del self.pinned[key]
                if entry.is_known():
                    self._others.put(key, entry)

    def get(self, key: Key) -> Held | None:
        """The entry, pinned or not, if there is one in memory."""
        return self.pinned.get(key) or self._others.get(key)

    def clear(self) -> None:
        """Forget what is not pinned."""
        self._others.clear()
