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
        token: str | None,
        next_key_id: int,
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
