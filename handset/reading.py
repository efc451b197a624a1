"""Messages as lines of text with the choices that they offer. Any JSON results in some text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from handset import message_parts
from handset.message_parts import (
    CardPart,
    ChoicePart,
    ContactPart,
    FilePart,
    LocationPart,
    MarkPart,
    MessagePart,
    OfferPart,
    OrderPart,
    RequestPart,
    TextPart,
)
from tidings.wire.decoding import UNREADABLE

MAX_LINES = 200

_REQUESTS = {
    message_parts.ASKS_CONTACT: "[asks for your contact details: /contact NAME NUMBER]",
    message_parts.ASKS_LOCATION: "[asks for a location: /location LATITUDE LONGITUDE]",
}


@dataclasses.dataclass(frozen=True, slots=True)
class ReplyChoice:
    """Choice that a message offers."""

    label: str  # text to show
    answer: Mapping[str, Any] | None = None  # content that choosing it sends; `None` when it sends nothing
    effect: str = ""  # effect on this device alone; empty when it sends a content


@dataclasses.dataclass(slots=True)
class MessageText:
    """Text of a message: its lines in order, and its choices, which the lines number from 1."""

    lines: list[str] = dataclasses.field(default_factory=list)
    choices: list[ReplyChoice] = dataclasses.field(default_factory=list)

    def write(self, *words: str) -> None:
        line = " ".join(word for word in words if word)
        if line and len(self.lines) < MAX_LINES:
            self.lines += line.split("\n")

    def offer(self, choice: ChoicePart) -> None:
        self.choices.append(ReplyChoice(choice.label, choice.answer, choice.effect))
        self.write(f"  {len(self.choices)}. {choice.label}", f"({choice.more})" if choice.more else "")


def read(kind: str, raw: str) -> MessageText:
    """Return the text of a content.

    kind: type of the message
    raw: content as JSON
    """
    reading = MessageText()
    _write_parts(reading, message_parts.read(kind, raw))
    if not reading.lines:
        reading.write(f"[{kind}]")
    return reading


def answered(raw: str) -> str:
    """Return the id of the message that a content replies to; empty for none.

    raw: content as JSON
    """
    try:
        found = message_parts.value_at(msgspec.json.decode(raw), "context")
    except UNREADABLE:
        return ""
    return message_parts.text_at(found, "id")


def describe(kind: str, raw: str) -> str:
    """Return the text of a content as one string."""
    return "\n".join(read(kind, raw).lines)


def _write_parts(reading: MessageText, parts: Sequence[MessagePart]) -> None:
    for part in parts:
        match part:
            case ChoicePart():
                reading.offer(part)
            case TextPart():
                reading.write(f"[{part.text}]" if part.place == message_parts.LABEL else part.text)
            case LocationPart():
                point = f"{part.latitude}, {part.longitude}"
                reading.write("[location]", part.words, f"({point})" if part.words else point)
            case ContactPart():
                reading.write("[contact]", ", ".join([part.person, *part.details]))
            case FilePart():
                reading.write(f"[{part.kind}]", part.label, f"({bytes_of(part.size)})" if part.size is not None else "")
            case CardPart():
                reading.write(f"[card {part.number}]")
                _write_parts(reading, part.parts)
            case OfferPart():
                reading.write("[offer]", part.text, f"(until {part.until})" if part.until else "")
            case OrderPart():
                reading.write("[order]", ", ".join(part.items))
            case RequestPart():
                reading.write(_REQUESTS[part.wanted])
            case MarkPart():
                reading.write(f"[{part.label}]", part.text)


def bytes_of(size: float) -> str:
    """Return a size in a readable unit."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000 or unit == "MB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return ""
