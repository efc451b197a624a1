"""Wake-up events by which one shard of this process notifies another."""

from __future__ import annotations

from tidings.aio.service import Wakeup


class ShardWakeups:
    """One wake-up per shard number, regardless of the owner; at most as many as there are shards."""

    def __init__(self) -> None:
        self._wakeups: dict[int, Wakeup] = {}

    def of(self, shard: int) -> Wakeup:
        """Return the wake-up that the owner of `shard` waits for."""
        return self._wakeups.setdefault(shard, Wakeup())

    def wake(self, shard: int) -> None:
        """Wake the owner of `shard` in this process. An owner in another process finds the row at its next poll."""
        self.of(shard).kick()
