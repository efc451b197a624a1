"""Quotas: bounds of the bytes or items that may be held, of one key and of all keys together."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclasses.dataclass(frozen=True, slots=True)
class Quota:
    """Limit on what may be held. The caller keeps the counts: in `QuotaUsage`, in fields, or in the database."""

    # Bytes or items of all keys together, and of one key.
    limit: int
    each: int
    # Whether a key may hold no more than is still free. Then one key gets at most half of the limit, each of two keys a
    # third, and a new key always finds as much room as any other has used.
    is_fair: bool = False

    def has_room(self, total: int, own: int, size: int = 1) -> bool:
        """Return whether `size` more may be held of a key.

        total, own: held of all keys together, and of this key.
        """
        held = own + size
        return held <= self.each and total + (held if self.is_fair else size) <= self.limit


class QuotaUsage(Generic[Key]):
    """Bytes or items in use, by key: the counts that a `Quota` bounds.

    total: of all keys together.
    """

    __slots__ = ("_of", "total")

    def __init__(self) -> None:
        self.total = 0
        self._of: dict[Key, int] = {}

    def of(self, key: Key) -> int:
        """Return what is held of a key."""
        return self._of.get(key, 0)

    def has_room(self, quota: Quota, key: Key, size: int) -> bool:
        """Return whether `size` more may be held. A key of which nothing is held has room for one item of any size
        within the limit of all keys.
        """
        own = self._of.get(key)
        return self.total + size <= quota.limit if own is None else quota.has_room(self.total, own, size)

    def add(self, key: Key, size: int = 1) -> None:
        """Count what is held from now on."""
        self.total += size
        self._of[key] = self._of.get(key, 0) + size

    def remove(self, key: Key, size: int = 1) -> None:
        """Subtract what is no longer held."""
        self.total -= size
        left = self._of.get(key, 0) - size
        if left:
            self._of[key] = left
        else:
            self._of.pop(key, None)
