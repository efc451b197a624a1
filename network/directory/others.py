"""What other nodes of the network have to hear of what changes in the directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidings.storage.network.prekeys import Counts

_NO_KEYS: Mapping[str, bytes] = {}


class Others(Protocol):
    """The other nodes, each with caches of its own and devices attached to it."""

    async def changed(
        self, numbers: Sequence[str], *, expelled: Sequence[str] = (), keys: Mapping[str, bytes] = _NO_KEYS
    ) -> None:
        """Blocks or registrations of these numbers have changed: the others have noted it when this returns.

        Call it after the commit. expelled: those whose tokens are void; keys: of those that were registered, the
        identity keys.
        """
        ...

    def keys_taken(self, taken: Sequence[tuple[str, bool, bool]]) -> None:
        """One-time pre-keys were handed out: for each (number, an ordinary one, a Kyber one)."""
        ...

    def keys_left(self, number: str, left: Counts) -> None:
        """A device has left more, and so many are there now."""
        ...

    async def is_stale(self, number: str, epoch: int) -> bool:
        """Is the device, or its first partition, attached elsewhere under a higher epoch? Without one nothing is."""
        ...


class Nobody:
    """There is one node."""

    async def changed(
        self, numbers: Sequence[str], *, expelled: Sequence[str] = (), keys: Mapping[str, bytes] = _NO_KEYS
    ) -> None:
        """Nothing to do."""

    def keys_taken(self, taken: Sequence[tuple[str, bool, bool]]) -> None:
        """Nothing to do."""

    def keys_left(self, number: str, left: Counts) -> None:
        """Nothing to do."""

    async def is_stale(self, number: str, epoch: int) -> bool:
        """It would be known here."""
        return False


NOBODY = Nobody()
