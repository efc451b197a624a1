"""Notification of other nodes about changes in the directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidings.storage.network.prekeys import Counts

_NO_KEYS: Mapping[str, bytes] = {}


class OtherNodes(Protocol):
    """The other nodes, each with its own caches and attached devices."""

    async def changed(
        self, numbers: Sequence[str], *, expelled: Sequence[str] = (), keys: Mapping[str, bytes] = _NO_KEYS
    ) -> None:
        """Announce changed blocks or registrations of these numbers; return when the other nodes have processed it.

        Call it after the commit.

        expelled: numbers whose previous tokens are void.
        keys: identity keys of the numbers that were registered.
        """
        ...

    def keys_taken(self, taken: Sequence[tuple[str, bool, bool]]) -> None:
        """Announce that one-time pre-keys were handed out: (number, an ordinary one was, a Kyber one was)."""
        ...

    def keys_left(self, number: str, left: Counts) -> None:
        """Announce that a device has uploaded one-time pre-keys, and how many it has now."""
        ...

    async def is_stale(self, number: str, epoch: int) -> bool:
        """Return whether the device, or its first partition, is attached to another node under a higher epoch.

        Without an epoch (0) it is never stale.
        """
        ...


class NoNodes:
    """Stand-in for the other nodes when there are none."""

    async def changed(
        self, numbers: Sequence[str], *, expelled: Sequence[str] = (), keys: Mapping[str, bytes] = _NO_KEYS
    ) -> None:
        """Notify no node."""

    def keys_taken(self, taken: Sequence[tuple[str, bool, bool]]) -> None:
        """Notify no node."""

    def keys_left(self, number: str, left: Counts) -> None:
        """Notify no node."""

    async def is_stale(self, number: str, epoch: int) -> bool:
        """Return False: this node knows all attached devices."""
        return False


NO_NODES = NoNodes()
