"""A mapping with a size limit that evicts the least recently used entry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
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
