"""Other nodes of the network, as the parts of this process see them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidings.storage.network.prekeys import PreKeyCounts
from tidings.wire import device

_NO_KEYS: Mapping[str, bytes] = {}


class OtherNodes:
    """The other nodes, each with its own caches and attached devices. This base class stands for none."""

    # For the directory.

    async def changed(
        self, numbers: Sequence[str], *, expelled: Sequence[str] = (), keys: Mapping[str, bytes] = _NO_KEYS
    ) -> None:
        """Announce changed blocks or registrations of these numbers; return when the other nodes have processed it.

        Call it after the commit.

        expelled: numbers whose previous tokens are void.
        keys: identity keys of the numbers that were registered.
        """

    def changed_perhaps(self) -> None:
        """Make the other nodes read registrations again: a change of some has an unknown outcome."""

    def keys_taken(self, taken: Sequence[tuple[str, bool, bool]]) -> None:
        """Announce that one-time pre-keys were handed out: (number, an ordinary one was, a Kyber one was)."""

    def keys_left(self, number: str, left: PreKeyCounts) -> None:
        """Announce that a device has uploaded one-time pre-keys, and how many it has now."""

    async def is_stale(self, number: str, login_epoch: int) -> bool:
        """Return whether the device, or its first partition, is attached to another node under a higher login epoch.

        Without a login epoch (0) it is never stale.
        """
        return False

    async def attached_elsewhere(self, numbers: Sequence[str]) -> Collection[str]:
        """Return those of the numbers with a device or partition attached to another node."""
        return ()

    # For connections.

    async def claim(self, number: str, login_epoch: int, part: device.Partition) -> bool:
        """Attach this partition of a device here, and from then on at no other node. False when it may not attach."""
        return True

    def detached(self, number: str, part: device.Partition) -> None:
        """Record that the partition has detached or did not attach after all, unless it is attached again by the end of
        this event-loop iteration.
        """

    async def close(self) -> None:
        """Return when the other nodes have confirmed the envelopes given to them to deliver, or the router has stored
        these.
        """


NO_NODES = OtherNodes()
