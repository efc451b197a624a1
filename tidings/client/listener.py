"""What a connection of the device API tells whoever uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from tidings.wire import device

# What the caller knows a send by: it is handed back with the answer.
Sent = TypeVar("Sent", contravariant=True)


class DeviceListener(Generic[Sent]):
    """Who hears what happens on a connection. All are called on the event loop and must not block.

    Derive from it and define what is of interest: by itself it does nothing.
    """

    def attached(self, number: str) -> None:
        """A device is logged in: whatever it sent without an answer is to be sent again."""

    def detached(self, number: str, reason: str, detail: str) -> None:
        """A device is not logged in, or no longer.

        After `unauthorized` and `stale_epoch` it stays off until `log_in`; after `replaced` (it is logged in elsewhere)
        until then or the next connection. For any other reason it is tried again by itself.
        """

    def ready(self) -> None:
        """Every device that was to log in has been answered."""

    def lost(self, reason: str) -> None:
        """There is no connection; unless this one is stopping, it is tried again until it succeeds."""

    def delivered(self, delivery: device.Deliver) -> None:
        """Something arrived: `acknowledge` it once it is on disk."""

    def accepted(self, sent: Sequence[Sent]) -> None:
        """The network has these: they need not be sent again."""

    def refused(self, sent: Sent, reason: str, detail: str) -> None:
        """The network does not take this one; with `overloaded` it can be sent again after a while."""

    def held_back(self, sent: Sent) -> None:
        """The network takes no more for this one's recipient for now: it is sent again by itself, in its order.

        It is answered in the end, unless its device is detached or the connection is lost.
        """

    def prekeys_low(self, notice: device.PreKeysLow) -> None:
        """A device has few one-time pre-keys left with the network."""
