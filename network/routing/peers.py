"""What the router needs of the other nodes of its network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from network.routing.delivery_queue import Origin
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device


class Peers(Protocol):
    """Other nodes, to which devices may be attached."""

    def takes(self, origin: Origin, frame: device.Send, *, here: bool, storing: bool) -> bool:
        """Is this envelope delivered by another node, or may it be, or is it stored for one? Then it is in their hands.

        here: its recipient is attached here; storing: something for its recipient is on its way into the mailbox.
        """
        ...

    def stored(self, number: str, rows: Iterable[Envelope] = ()) -> None:
        """Something was stored for a device that is not attached here: whoever has it now looks into its mailbox.

        rows: what, where the caller still has it.
        """
        ...

    def attached(self, number: str) -> None:
        """That device, or a part of it, attached here."""
        ...

    def take_first_copy(self, sender: str, number: str) -> bool:
        """Whether the mailbox of that device has to be read before the copy of a message to a group that comes next;
        once."""
        ...

    def detached(self, number: str, part: device.Partition) -> None:
        """That device, or part of it, is not attached here any more."""
        ...
