"""Interface between a fleet of devices and its application, with the messages, events and actions they exchange."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

TYPING = "typing"  # kind of the event that a peer is writing


@dataclasses.dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """Message as its recipient sees it."""

    number: str  # number of the recipient's device
    peer: str  # sender
    id: str
    position: int  # position in the fleet's inbox; increases with each message
    attempt: int  # number of deliveries by the network until the message was shown; 1 in the normal case
    time: int  # time at which the network accepted the message, Unix milliseconds
    type: str
    text: str  # empty for any other type
    raw: str = ""  # content as JSON, for any type but text, and for a text that replies to a message; else empty
    group: str = ""  # group that the message was sent to; empty for none


@dataclasses.dataclass(frozen=True, slots=True)
class SendReceipt:
    """Send a `delivered` or `read` receipt to the sender."""

    kind: str  # `delivered` or `read`
    after: float = 0.0  # seconds of delay


@dataclasses.dataclass(frozen=True, slots=True)
class SendText:
    """Reply with this text."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class SendContent:
    """Reply with this content."""

    content: Mapping[str, Any]


Action = SendReceipt | SendText | SendContent


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceEvent:
    """Event other than a message. The application is notified at least once, and the event is not stored.

    Kinds of events:
    - `delivered` or `read`: the peer sent a receipt for our messages `refs`.
    - `expired`: our messages `refs` were never delivered.
    - `refused`: the network did not accept our messages `refs`; `detail` is the reason.
    - `identity`: the peer has a new identity key.
    - `undecryptable`: a message of the peer could not be read.
    - `typing`: the peer is writing.
    - `group_changed`: the peer changed a group; `detail` is the change, `refs` are the affected numbers,
      `subject` is the group's subject.
    """

    number: str  # number of the device
    peer: str
    kind: str
    refs: tuple[str, ...] = ()
    detail: str = ""
    group: str = ""  # group of the event, or group that the messages of a receipt were sent to; empty for none
    subject: str = ""


class Application(Protocol):
    """Application of a fleet. Every method is called on the event loop and must not block it for long."""

    def actions(self, message: ReceivedMessage) -> Sequence[Action]:
        """Return the receipts and replies to a message.

        Must be pure: it is called before the message is stored, and again after a failed commit.
        """

    def show(self, messages: Sequence[ReceivedMessage]) -> None:
        """Show messages in order.

        Called once per message, after it is on disk and before a receipt or reply is sent.
        """

    def list_shown(self, messages: Sequence[ReceivedMessage]) -> set[tuple[str, str]]:
        """Return the (number, id) of those messages that were shown.

        Called at the start, because a crash may have prevented some from being shown.
        """

    def notify(self, event: DeviceEvent) -> None: ...
