"""Device of a recipient in memory: its identity, and its outbox."""

from __future__ import annotations

from typing import Protocol

from tidings import e2ee
from tidings.storage.handset import outbox


class Channel(Protocol):
    """Connection through which a logged-in device sends its envelopes."""

    def offer(self, device: Device, envelope: outbox.OutboxRow) -> None:
        """Send an envelope as soon as there is room."""
        ...


class Device:
    """Number with its identity and its token."""

    __slots__ = ("blocked", "channel", "identity", "next_key_id", "number", "outbox", "registration_id", "token")

    def __init__(
        self,
        number: str,
        registration_id: int,
        identity: e2ee.IdentityKeyPair,
        *,
        token: str | None = None,
        next_key_id: int = 1,
        blocked: str = "",
    ) -> None:
        self.number = number
        self.registration_id = registration_id
        self.identity = identity
        self.token = token  # of the network; `None` before the registration or when it was refused
        self.next_key_id = next_key_id  # of the next pre-key
        self.blocked = blocked  # number that this device blocks; empty for none
        self.channel: Channel | None = None  # connection on which the device is logged in; `None` for none
        # Committed envelopes that the network has not accepted, by position. All of them are sent again after the
        # connection is lost. The fleet's `Mailroom` bounds their total number.
        self.outbox: dict[int, outbox.OutboxRow] = {}

    def __repr__(self) -> str:
        return f"Device({self.number})"


class DeviceObserver:
    """Observer of events of a fleet's devices. Subclasses override the methods. They are called on the event loop."""

    def prekeys_low(self, device: Device, remaining: int, kyber_remaining: int) -> None:
        """Called when the network has only `remaining` and `kyber_remaining` one-time pre-keys of a device left."""

    def unauthorized(self, device: Device) -> None:
        """Called when a device's token is invalid. The device stays offline until it is logged in again."""

    def replaced(self, device: Device) -> None:
        """Called when a device has logged in on another connection. It stays offline until the next connection."""

    def connected(self) -> None:
        """Called when every device on a connection has received a response to its login."""

    def disconnected(self, reason: str) -> None:
        """Called when a connection is lost or cannot be opened. It is retried."""
