"""Device of a recipient in memory: its identity, and its outbox."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from tidings import e2ee
from tidings.storage.handset.outbox import OutboxRow


class Channel(Protocol):
    """Connection through which a logged-in device sends its envelopes."""

    def offer(self, device: Device, envelope: OutboxRow) -> None:
        """Send an envelope as soon as there is room."""


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Device:
    """Number with its identity and its token."""

    number: str
    registration_id: int
    identity: e2ee.IdentityKeyPair
    _: dataclasses.KW_ONLY
    token: str | None = None  # token at the network; `None` before the registration or when it was refused
    next_key_id: int = 1  # id of the next pre-key
    blocked: str = ""  # number that this device blocks; empty for none
    # connection on which the device is logged in; `None` for none
    channel: Channel | None = dataclasses.field(default=None, init=False)
    # Committed envelopes that the network has not accepted, by position. All of them are sent again after the
    # connection is lost. The fleet's `MessageStore` bounds their total number.
    outbox: dict[int, OutboxRow] = dataclasses.field(default_factory=dict, init=False)

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
