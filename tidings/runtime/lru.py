"""A mapping with a size limit that forgets what was used longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LRU(Generic[Key, Value]):
    """Entries, at most `limit`; a `get` or a `put` makes an entry the newest."""

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
        """May something have been forgotten?"""
        return len(self._entries) >= self._limit

    def get(self, key: Key) -> Value | None:
        """The value, or `None` when it is not (or no longer) held."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Store, and forget the oldest entry when over the limit."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def pop(self, key: Key) -> Value | None:
        """The value, which is forgotten, or `None` when it is not (or no longer) held."""
        return self._entries.pop(key, None)

    def drop(self, key: Key) -> None:
        """Forget one entry, if it is there."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
