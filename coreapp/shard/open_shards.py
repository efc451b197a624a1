"""The shards that this process answers for at this moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from coreapp.shard.shard import Shard
from tidings.storage.business.shards import Lease
from tidings.wire.addresses import shard_of


class OpenShards:
    """Shards by their numbers. Empty in a process that stands by."""

    def __init__(self) -> None:
        self._shards: dict[int, Shard] = {}
        # Of the layout that they are part of.
        self._count = 1
        self._changed: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._shards)

    def __iter__(self) -> Iterator[Shard]:
        """In the order of their numbers."""
        return iter([self._shards[number] for number in sorted(self._shards)])

    def on_change(self, call: Callable[[], None]) -> None:
        """Have `call` called whenever a shard begins or ceases to answer."""
        self._changed = call

    @property
    def numbers(self) -> list[int]:
        return sorted(self._shards)

    @property
    def first(self) -> Shard | None:
        """The one that does what is done once for all."""
        return self._shards.get(0)

    def get(self, number: int) -> Shard | None:
        """The one of this number, if it is here."""
        return self._shards.get(number)

    def of(self, recipient: str) -> Shard | None:
        """The one that a recipient's number belongs to, if it is here."""
        found = self._shards.get(shard_of(recipient, self._count))
        # One of an earlier layout, which has yet to close, has other recipients.
        return found if found is not None and found.context.lease.shards == self._count else None

    def put(self, shard: Shard) -> None:
        """It answers from now on."""
        lease = shard.context.lease
        self._count = lease.shards
        self._shards[lease.shard] = shard
        self._changed()

    def remove(self, lease: Lease) -> None:
        """The one of this lease does not answer any more; one of a later lease does."""
        found = self._shards.get(lease.shard)
        if found is not None and found.context.lease == lease:
            del self._shards[lease.shard]
            self._changed()
