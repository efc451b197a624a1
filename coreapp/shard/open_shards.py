"""Shards that this process currently serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from coreapp.shard.shard import Shard
from tidings.storage.business import shard_blocks
from tidings.storage.business.shards import Lease
from tidings.wire import addresses


class OpenShards:
    """Shards by number. Empty in a standby."""

    def __init__(self) -> None:
        self._shards: dict[int, Shard] = {}
        # Numbers of shards in the current layouts, by shard block.
        self._counts: dict[int, int] = {}
        self._changed: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._shards)

    def __iter__(self) -> Iterator[Shard]:
        """Iterate over the shards in the order of their numbers."""
        return iter([self._shards[number] for number in sorted(self._shards)])

    def on_change(self, call: Callable[[], None]) -> None:
        """Register `call` to be called whenever a shard was added or removed."""
        self._changed = call

    @property
    def numbers(self) -> list[int]:
        return sorted(self._shards)

    @property
    def first(self) -> Shard | None:
        """First shard of the first number; None if it is not here."""
        return self.first_of(0)

    def first_of(self, block: int) -> Shard | None:
        """Return the first shard of a number, which does the work that is done once per account; None if it is not
        here.

        block: shard block of the number
        """
        return self._shards.get(shard_blocks.first_shard(block))

    def of_number(self, block: int) -> list[Shard]:
        """Return the open shards of a number."""
        return [shard for shard in self if shard.context.lease.block == block]

    def callbacks_due(self) -> int:
        """Return the number of callbacks that are due and not being posted."""
        return sum(shard.webhook.queue.ready for shard in self._shards.values())

    def get(self, number: int) -> Shard | None:
        """Return the shard of this number; None if it is not here."""
        return self._shards.get(number)

    def of(self, recipient: str, block: int = 0) -> Shard | None:
        """Return the shard of a recipient; None if it is not here.

        block: shard block of the number that sends or receives
        """
        count = self._counts.get(block, 1)
        found = self._shards.get(shard_blocks.first_shard(block) + addresses.shard_of(recipient, count))
        # A shard of an earlier layout that is still closing has other recipients.
        return found if found is not None and found.context.lease.shards == count else None

    def put(self, shard: Shard) -> None:
        """Add a shard that is ready to handle requests."""
        lease = shard.context.lease
        self._counts[lease.block] = lease.shards
        self._shards[lease.shard] = shard
        self._changed()

    def remove(self, lease: Lease) -> None:
        """Remove the shard of this lease; a shard of a later lease stays."""
        found = self._shards.get(lease.shard)
        if found is not None and found.context.lease == lease:
            del self._shards[lease.shard]
            self._changed()
