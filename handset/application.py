"""The application of a recipient: what it is given, what it decides, what it shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


@dataclasses.dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """One message as its recipient sees it.

    position: grows with each message of the fleet.
    attempt:  how often the network had delivered it when it was shown; 1 when nothing went wrong.
    time:     Unix milliseconds at which the network accepted it.
    text:     empty for any other type.
    raw:      the content as JSON, for any type but text, and for a text that answers another message.
    group:    the one that it was sent to; empty for none.
    """

    number: str
    peer: str
    id: str
    position: int
    attempt: int
    time: int
    type: str
    text: str
    raw: str = ""
    group: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class SendReceipt:
    """Tell the sender that its message was `delivered` or `read`, `after` so many seconds."""

    kind: str
    after: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class SendText:
    """Send this text back."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class SendContent:
    """Send this content back."""

    content: Mapping[str, Any]


Action = SendReceipt | SendText | SendContent


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceEvent:
    """Something other than a message. Given at least once, and not kept.

    kind:  `delivered` or `read` (the peer's receipt for our messages `refs`), `expired` (they were never delivered),
           `refused` (the network did not accept them, `detail` says why), `identity` (the peer has a new identity key),
           `undecryptable` (a message of the peer could not be read),
           `group_changed` (by the peer; `detail` says how, `refs` are the numbers concerned, `subject` is its subject).
    group: the one that it is about, or that the messages of a receipt were sent to.
    """

    number: str
    peer: str
    kind: str
    refs: tuple[str, ...] = ()
    detail: str = ""
    group: str = ""
    subject: str = ""


class Application(Protocol):
    """Every method is called on the event loop and must not block it for long."""

    def actions(self, message: ReceivedMessage) -> Sequence[Action]:
        """Receipts and answers to a message. Pure: called before the message is stored, and again after a failure."""
        ...

    def show(self, messages: Sequence[ReceivedMessage]) -> None:
        """Show these, in order. Called once for each message, after it is on disk and before anything is answered."""
        ...

    def list_shown(self, messages: Sequence[ReceivedMessage]) -> set[tuple[str, str]]:
        """The (number, id) of those that were shown; called at the start, for what a crash may have cut off."""
        ...

    def notify(self, event: DeviceEvent) -> None: ...
