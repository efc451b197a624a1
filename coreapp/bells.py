"""What wakes a shard of this process when another one has left something for it."""

from __future__ import annotations

from tidings.runtime.service import Wakeup


class Bells:
    """One for each shard, whoever owns it; at most as many as there are shards."""

    def __init__(self) -> None:
        self._bells: dict[int, Wakeup] = {}

    def of(self, shard: int) -> Wakeup:
        """That the owner of a shard waits for."""
        return self._bells.setdefault(shard, Wakeup())

    def ring(self, shard: int) -> None:
        """There is something for it. An owner in another process finds it when that looks into the database."""
        self.of(shard).kick()
