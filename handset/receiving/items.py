"""Items that a mailroom works on: deliveries, messages of our own, and work on groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from handset.devices.device import Device
from handset.groups.groups import GroupWork
from tidings import e2ee
from tidings.wire.device import Deliver

PeerKey = tuple[str, str]  # number, peer
MessageKey = tuple[str, str, str]  # number, peer, id


class DeliveryOrigin(Protocol):
    """The connection that deliveries come on."""

    def acknowledge(self, deliveries: Sequence[Deliver]) -> None:
        """They are on disk; what came on a connection that is gone comes again."""
        ...


@dataclasses.dataclass(slots=True, eq=False)
class Delivery:
    """One delivery; acknowledged where it came from as soon as what it says is on disk."""

    origin: DeliveryOrigin
    device: Device
    frame: Deliver
    attempt: int = 1

    @property
    def key(self) -> MessageKey:
        """Under which the message in it is known."""
        return self.device.number, self.frame.sender, self.frame.message_id

    @property
    def peer_key(self) -> PeerKey:
        """Of the session that it came by, or is about."""
        return self.device.number, self.frame.sender

    @property
    def sender_key(self) -> tuple[str, str, str]:
        """The (number, group, sender) whose sender key a message to a group is read with."""
        return self.device.number, self.frame.group, self.frame.sender

    @property
    def is_repetition(self) -> bool:
        """Does it repeat a message that was asked for again? Then that may be one that could not be decrypted."""
        return self.frame.message_id != self.frame.id


@dataclasses.dataclass(slots=True, eq=False)
class OutgoingMessage:
    """One message of our own. Without a session and without a bundle it is not sent, and its result is `None`.

    new_session: set a session up from the bundle even though there is one; what waits for that goes out behind it.
    resendable:  keep it for the peer, who may ask for it again.
    """

    device: Device
    peer: str
    plaintext: bytes
    bundle: e2ee.PreKeyBundle | None = None
    new_session: bool = False
    resendable: bool = True

    @property
    def peer_key(self) -> PeerKey:
        """Of the session that it goes out on."""
        return self.device.number, self.peer


# `None` stands for the chores.
Item = Delivery | OutgoingMessage | GroupWork | None
