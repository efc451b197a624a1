"""Changes of registrations and blocks, which invalidate the caches of every node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from network.directory.logins import DeviceLogins
from network.directory.other_nodes import NO_NODES, OtherNodes
from network.directory.recipients import Recipients

_NO_KEYS: Mapping[str, bytes] = {}


class DirectoryChanges:
    """Cache invalidation on all nodes. Call it after the commit; afterwards no node uses the previous state."""

    def __init__(self, recipients: Recipients, logins: DeviceLogins) -> None:
        self._recipients = recipients
        self._logins = logins
        self.other_nodes: OtherNodes = NO_NODES

    async def blocks(self, number: str) -> None:
        """Invalidate caches after a number has changed its blocks."""
        self._recipients.changed(number)
        await self.other_nodes.changed([number])

    def registrations(self, numbers: Sequence[str]) -> None:
        """Invalidate this node's caches: the previous tokens of these numbers are void."""
        self._logins.changed()
        for number in numbers:
            self._recipients.changed(number)

    async def tell_others(self, numbers: Sequence[str], keys: Mapping[str, bytes] = _NO_KEYS) -> None:
        """Invalidate the other nodes' caches; their devices of these numbers are disconnected.

        keys: identity keys of the numbers that were registered.
        """
        await self.other_nodes.changed(numbers, expelled=numbers, keys=keys)

    async def is_stale(self, number: str, epoch: int) -> bool:
        """Return whether the device is attached to another node under a higher epoch."""
        return await self.other_nodes.is_stale(number, epoch)
