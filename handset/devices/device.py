"""One recipient in memory: who it is, and what it still has to send."""

from __future__ import annotations

from typing import Protocol

from tidings import e2ee
from tidings.storage.handset import outbox


class Channel(Protocol):
    """Where a device that is logged in sends its envelopes."""

    def offer(self, device: Device, envelope: outbox.OutboxRow) -> None:
        """Send it as soon as there is room."""
        ...


class Device:
    """A number with its identity and its token.

    outbox:  committed envelopes that the network has not accepted, by position; all that is sent again after a loss of
             the connection. Their number in a fleet is bounded by its `Mailroom`.
    channel: the connection on which it is logged in.
    """

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
        self.token = token
        self.next_key_id = next_key_id
        self.blocked = blocked
        self.channel: Channel | None = None
        self.outbox: dict[int, outbox.OutboxRow] = {}

    def __repr__(self) -> str:
        return f"Device({self.number})"


class DeviceObserver:
    """Events of a fleet's devices, each to be overridden by whoever wants to know of it. Called on the event loop."""

    def prekeys_low(self, device: Device, remaining: int, kyber_remaining: int) -> None:
        """The network has only so many one-time pre-keys of a device left."""

    def unauthorized(self, device: Device) -> None:
        """Its token is void; it stays off until it is logged in again."""

    def replaced(self, device: Device) -> None:
        """It has logged in on another connection; it stays off until the next connection."""

    def connected(self) -> None:
        """Every device on one of the connections has been answered."""

    def disconnected(self, reason: str) -> None:
        """One of the connections is lost, or cannot be made; it is tried again."""
