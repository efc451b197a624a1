"""Which messages are in the inbox already, as far as memory reaches."""

from __future__ import annotations

from collections.abc import Iterable

Key = tuple[str, str, str]  # number, peer, id


class Seen:
    """The last `limit` keys; about 250 bytes each. While `complete`, what is not here is not in the inbox at all."""

    def __init__(self, newest_first: Iterable[Key], limit: int) -> None:
        keys = list(newest_first)
        self.complete = len(keys) < limit
        self._limit = limit
        self._keys: dict[Key, None] = dict.fromkeys(reversed(keys[:limit]))

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def add(self, key: Key) -> None:
        self._keys[key] = None
        if len(self._keys) > self._limit:
            del self._keys[next(iter(self._keys))]
            self.complete = False
