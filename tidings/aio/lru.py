"""Mappings with a size limit that evict the least recently used entry; those of `PinnedCache` stay while in use."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LRU(Generic[Key, Value]):
    """Least recently used cache of at most `limit` entries; `get` and `put` make an entry the newest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    @property
    def is_full(self) -> bool:
        """Return whether the limit is reached, so that entries may have been evicted."""
        return len(self._entries) >= self._limit

    def get(self, key: Key) -> Value | None:
        """Return the value, or `None` when the key is not (or no longer) present."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Store a value, and evict the oldest entry when over the limit."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def pop(self, key: Key) -> Value | None:
        """Remove an entry and return its value, or `None` when the key is not (or no longer) present."""
        return self._entries.pop(key, None)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()


class Entry:
    """Entry of a `PinnedCache` for one key; subclasses add the value."""

    __slots__ = ("pins",)

    # Number of pins; changed by the cache alone.
    pins: int

    def is_known(self) -> bool:
        """Return whether the entry is to be cached once it is not pinned."""
        raise NotImplementedError


Held = TypeVar("Held", bound=Entry)


class PinnedCache(Generic[Key, Held]):
    """Reference-counted entries, and at most `limit` others in order of their last use."""

    def __init__(self, make: Callable[[], Held], limit: int) -> None:
        """make: returns an empty entry. limit: entries that are not pinned."""
        # Entries of pinned keys, for look-ups. The callers of `pin` bound their number.
        self.pinned: dict[Key, Held] = {}
        self._make = make
        self._others: LRU[Key, Held] = LRU(limit)

    def pin(self, keys: Iterable[Key]) -> None:
        """Pin one entry per key; it stays until `unpin` was called as often."""
        for key in keys:
            entry = self.pinned.get(key)
            if entry is None:
                self.pinned[key] = entry = self._others.pop(key) or self._make()
                entry.pins = 1
            else:
                entry.pins += 1

    def unpin(self, keys: Iterable[Key]) -> None:
        """Release one pin per key."""
        for key in keys:
            entry = self.pinned[key]
            entry.pins -= 1
            if not entry.pins:
                del self.pinned[key]
                if entry.is_known():
                    self._others.put(key, entry)

    @contextlib.contextmanager
    def pinning(self, keys: Sequence[Key]) -> Iterator[None]:
        """Pin one entry per key for the duration of the block."""
        self.pin(keys)
        try:
            yield
        finally:
            self.unpin(keys)

    def get(self, key: Key) -> Held | None:
        """Return the entry, pinned or not; `None` when it is not in memory."""
        return self.pinned.get(key) or self._others.get(key)

    def clear(self) -> None:
        """Drop all entries that are not pinned."""
        self._others.clear()
