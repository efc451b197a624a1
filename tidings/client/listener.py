"""Events of a connection of the device API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from tidings.wire import device

# The caller's handle for a send, which is passed back with the result.
Sent = TypeVar("Sent", contravariant=True)


class DeviceListener(Generic[Sent]):
    """Receiver of a connection's events. All methods are called on the event loop and must not block.

    Derive from it and override the events of interest. The defaults do nothing.
    """

    def attached(self, number: str) -> None:
        """Called when a device has logged in: resend all its unanswered envelopes."""

    def detached(self, number: str, reason: str, detail: str) -> None:
        """Called when a device is not, or no longer, logged in.

        After `unauthorized` and `stale_epoch` it is not logged in again before `log_in`; after `replaced` (it is logged
        in elsewhere) before `log_in` or the next reconnect. After any other reason the connection retries the login.
        """

    def logged_out(self, number: str) -> None:
        """Called when the network has answered a logout; not if the connection was lost before."""

    def ready(self) -> None:
        """Called when every login has been answered."""

    def lost(self, reason: str) -> None:
        """Called when the connection is lost. Unless it is stopping, it reconnects until it succeeds."""

    def delivered(self, delivery: device.Deliver) -> None:
        """Called for a delivery: `acknowledge` it once it is on disk."""

    def accepted(self, sent: Sequence[Sent]) -> None:
        """Called when the network has accepted envelopes, which need not be resent."""

    def refused(self, sent: Sent, reason: str, detail: str) -> None:
        """Called when the network refuses an envelope. With the reason `overloaded` it can be resent after a while."""

    def held_back(self, sent: Sent) -> None:
        """Called when the network refuses the recipient for now: the connection resends the envelope, in its order. An
        overloaded network's refusal of an envelope counts too while earlier ones to the recipient are held back.

        The final result follows, unless the device is detached or the connection is lost.
        """

    def prekeys_low(self, notice: device.PreKeysLow) -> None:
        """Called when the network has few one-time pre-keys of a device left."""
