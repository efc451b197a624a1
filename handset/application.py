"""What a recipient's application is to the library: it decides, it shows, it is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One message as its recipient sees it.

    position: grows with each message of the fleet.
    attempt:  how often the network had delivered it when it was shown; 1 when nothing went wrong.
    time:     Unix milliseconds at which the network took it.
    text:     empty for a type that is not text.
    raw:      the content as JSON, for a type that is not text, and for a text that answers another message.
    group:    that it was sent to, empty for none.
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
class Receipt:
    """Tell the sender that its message was `delivered` or `read`, `after` so many seconds."""

    kind: str
    after: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """Send this text back."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Forward:
    """Send this content back."""

    content: Mapping[str, Any]


Action = Receipt | Reply | Forward


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """Something that is no message. Given at least once, and not kept.

    event: `delivered` or `read` (the peer's receipt for our messages `refs`), `expired` (they were never delivered),
           `refused` (the network did not take them, `detail` says why), `identity` (the peer has a new identity key),
           `undecryptable` (a message of the peer could not be read),
           `group_changed` (by the peer; `detail` says how, `refs` are the numbers concerned, `subject` is its subject).
    group: that it is about: of a receipt, that its messages were sent to.
    """

    number: str
    peer: str
    event: str
    refs: tuple[str, ...] = ()
    detail: str = ""
    group: str = ""
    subject: str = ""


class Application(Protocol):
    """All are called on the event loop and must not block it for long."""

    def actions(self, message: Message) -> Sequence[Action]:
        """What to send in answer. Pure: it is asked before the message is stored, and asked again after a failure."""
        ...

    def show(self, messages: Sequence[Message]) -> None:
        """Show these, in order. Called once for each message, after it is on disk and before anything is answered."""
        ...

    def list_shown(self, messages: Sequence[Message]) -> set[tuple[str, str]]:
        """Asked at start, about what may have been shown just before a crash: the (number, id) that were."""
        ...

    def notice(self, notice: Notice) -> None: ...
