"""Other nodes, as the router needs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from network.routing.delivery_queue import EnvelopeOrigin
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device


class NodePeers(Protocol):
    """The other nodes, to which devices may be attached."""

    def takes(self, origin: EnvelopeOrigin, frame: device.Send, *, here: bool, storing: bool) -> bool:
        """Take an envelope that another node delivers or may deliver, or that is stored for it; False to route it here.

        here: its recipient is attached to this node.
        storing: an envelope for its recipient is being stored.
        """
        ...

    def stored(self, number: str, rows: Iterable[Envelope] = ()) -> None:
        """Announce stored envelopes of a device that is not attached here, so that its node reads the mailbox.

        rows: the envelopes; empty when the caller no longer has them.
        """
        ...

    def attached(self, number: str) -> None:
        """Record that a device, or a partition of it, attached here."""
        ...

    def take_first_copy(self, sender: str, number: str) -> bool:
        """Return whether the mailbox of a device must be read before the next group copy; True only once."""
        ...

    def detached(self, number: str, part: device.Partition) -> None:
        """Record that a device or one of its partitions has detached from this node."""
        ...
