"""Items that a message store processes: deliveries, own messages, and work on groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from handset.devices.device import Device
from handset.receiving.sender_keys import SenderKeyStore
from handset.sending.outbox import OutboxBatch
from tidings import e2ee
from tidings.storage.database import Connection
from tidings.wire.device import Deliver

PeerKey = tuple[str, str]  # number, peer
MessageKey = tuple[str, str, str]  # number, peer, id
KeyWanted = tuple[Device, str, str]  # device, peer, group
# Must raise only errors of the database.
GroupWork = Callable[[SenderKeyStore, Connection, OutboxBatch], Awaitable[Any]]


class DeliveryOrigin(Protocol):
    """Connection that deliveries arrive on."""

    def acknowledge(self, deliveries: Sequence[Deliver]) -> None:
        """Acknowledge deliveries that are on disk. The network redelivers those of a closed connection."""


@dataclasses.dataclass(slots=True, eq=False)
class Delivery:
    """Delivery, acknowledged on its origin once its effects are on disk."""

    origin: DeliveryOrigin
    device: Device
    frame: Deliver
    attempt: int = 1  # number of deliveries of the message in this batch

    @property
    def key(self) -> MessageKey:
        """Return the key that identifies the message."""
        return self.device.number, self.frame.sender, self.frame.message_id

    @property
    def peer_key(self) -> PeerKey:
        """Return the key of the session that the delivery belongs to."""
        return self.device.number, self.frame.sender

    @property
    def sender_key(self) -> tuple[str, str, str]:
        """Return the (number, group, sender) of the sender key that decrypts a group message."""
        return self.device.number, self.frame.group, self.frame.sender

    @property
    def is_repetition(self) -> bool:
        """Return whether this repeats a requested message, which may be in the inbox as undecryptable."""
        return self.frame.message_id != self.frame.id


@dataclasses.dataclass(slots=True, eq=False)
class OutgoingMessage:
    """Message of a device. Without a session and without a bundle it is not sent, and its result is `None`."""

    device: Device
    peer: str
    plaintext: bytes
    bundle: e2ee.PreKeyBundle | None = None  # bundle of the peer; `None` to use an existing session
    # Whether to set up a new session from the bundle even if one exists. Messages that wait for it are sent after this.
    new_session: bool = False
    resendable: bool = True  # whether it is kept for the peer, which may request it again

    @property
    def peer_key(self) -> PeerKey:
        """Return the key of the session that encrypts the message."""
        return self.device.number, self.peer


# `None` stands for maintenance tasks.
Item = Delivery | OutgoingMessage | GroupWork | None
