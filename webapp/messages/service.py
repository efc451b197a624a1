"""Handing messages to the Coreapp that owns their recipient."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import msgspec

from tidings.wire import core
from webapp.coreapp_link import Make
from webapp.errors import INVALID_RECIPIENT_TYPE, PARAMETER_INVALID, PARAMETER_MISSING, FixRequest
from webapp.messages.schemas import Message
from webapp.tokens import Caller

# A wa_id has at most 15 digits; what people write between them is left out.
_MAX_DIGITS = 20
_SEPARATORS = str.maketrans("", "", " -.()\u00a0")
_TYPES = frozenset(
    {
        "text",
        "template",
        "hsm",
        "image",
        "audio",
        "video",
        "document",
        "sticker",
        "location",
        "contacts",
        "interactive",
    }
)

_encode = msgspec.json.Encoder().encode


class AskOwner(Protocol):
    """The Coreapp that owns a recipient's shard."""

    async def ask(self, recipient: str, make: Make, expect: type[core.Accepted]) -> core.Accepted: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Sendable:
    """What the Coreapp is handed; content: the JSON that is encrypted for the recipient."""

    to: str
    kind: str
    content: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """wa_id: empty when it is not the number that was asked for, which clients would take for a rename."""

    id: str
    wa_id: str


class Messages:
    """Sends."""

    def __init__(self, coreapps: AskOwner) -> None:
        self._coreapps = coreapps

    async def send(self, caller: Caller, message: Message, request_id: str) -> Sent:
        """The message is committed when this returns. Raises `FixRequest`, and what the Coreapp link raises."""
        sendable = prepare(message)
        accepted = await self._coreapps.ask(
            sendable.to,
            lambda n: core.AcceptMessage(
                n=n,
                account=caller.account,
                to=sendable.to,
                kind=sendable.kind,
                content=sendable.content,
                request_id=request_id,
            ),
            core.Accepted,
        )
        return Sent(accepted.id, accepted.wa_id if accepted.wa_id == sendable.to else "")


def prepare(message: Message) -> Sendable:
    """Check what one field says about another. Raises `FixRequest`."""
    recipient_type = message.recipient_type or "individual"
    if recipient_type != "individual":
        known = "not supported yet" if recipient_type == "group" else "should be individual"
        raise FixRequest.because(INVALID_RECIPIENT_TYPE, f"recipient_type: {known}")
    kind = message.type or "text"
    if kind != "text":
        # The one place where the other types are missing.
        known = "not supported yet" if kind in _TYPES else f"should be one of {', '.join(sorted(_TYPES))}"
        raise FixRequest.because(PARAMETER_INVALID, f"type: {known}")
    if message.text is None:
        raise FixRequest.because(PARAMETER_MISSING, "text: is missing, which type text needs")
    content: dict[str, Any] = {"body": message.text.body}
    if message.preview_url is not None:
        content["preview_url"] = message.preview_url
    return Sendable(_digits(message.to), kind, _encode({"type": kind, kind: content}))


def _digits(to: str) -> str:
    digits = to.translate(_SEPARATORS).removeprefix("+")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _MAX_DIGITS:
        raise FixRequest.because(PARAMETER_INVALID, "to: should be a phone number, digits with or without +")
    return digits
