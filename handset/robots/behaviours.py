"""Behaviours of robots: pure functions from a number to a behaviour, and from a message to actions."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable, Mapping, Sequence

from handset import composing, reading
from handset.application import Action, ReceivedMessage, SendContent, SendReceipt, SendText
from handset.attachments import pointers
from handset.composing import Content
from tidings.media import kinds
from tidings.testing import numbers
from tidings.testing.numbers import TestKind
from tidings.wire import media_objects
from tidings.wire.device import DELIVERED, READ

OTHER_KIND = "11"  # digits of the robot whose number is announced as the new one


def reply_to(message: ReceivedMessage) -> Content | None:
    """Return the reply to a message; `None` when it requests nothing.

    A text requests a type by its first word (`location`, `order` …). The reply to a list, buttons, a template or
    products is the first choice that sends something. A file is returned unchanged by the same pointer, and Opus
    audio as a voice message.
    """
    if message.type == "text":
        words = message.text.split(None, 1)
        make = _REPLIES_BY_WORD.get(words[0].lower()) if words else None
        return make(message.number, message.peer, message.id) if make is not None else None
    if message.type in media_objects.KINDS:
        return _returned_file(message.type, message.raw)
    choices = reading.read(message.type, message.raw).choices
    answers = [choice.answer for choice in choices if choice.answer is not None]
    return composing.answering(dict(answers[0]), message.id, message.peer) if answers else None


def _returned_file(kind: str, raw: str) -> Content | None:
    found = pointers.find(kind, raw)
    if not found:
        return None
    content = pointers.content_of(found[0])
    if kind == "audio" and found[0].mime_type.replace(" ", "") == kinds.OPUS.replace(" ", ""):
        return {"type": "voice", "voice": content[kind]}
    return content


def _location(number: str, peer: str, message_id: str) -> Content:
    return composing.location(48.2082, 16.3738, "Stephansplatz", "1010 Wien")


def _contacts(number: str, peer: str, message_id: str) -> Content:
    return composing.contact("Ada Lovelace", f"+{number}")


def _order(number: str, peer: str, message_id: str) -> Content:
    return composing.order("c1", {"p1": 2}, "as always")


def _reaction(number: str, peer: str, message_id: str) -> Content:
    return composing.reaction(message_id, "👍")


def _system(number: str, peer: str, message_id: str) -> Content:
    other = number[:-6] + OTHER_KIND + number[-4:]
    return composing.changed_number(other, f"{number} changed to {other}")


def _unknown(number: str, peer: str, message_id: str) -> Content:
    return composing.unknown()


def _ephemeral(number: str, peer: str, message_id: str) -> Content:
    return composing.ephemeral()


def _reply(number: str, peer: str, message_id: str) -> Content:
    return composing.answering(composing.text("here you are"), message_id, peer)


def _forwarded(number: str, peer: str, message_id: str) -> Content:
    return composing.forwarded(composing.text("look at this"))


def _referral(number: str, peer: str, message_id: str) -> Content:
    return composing.referred(composing.text("Tell me more"), "https://example.com/ad", "Soup of the day")


def _product(number: str, peer: str, message_id: str) -> Content:
    return composing.about_product(composing.text("Is it there in red?"), message_id, peer, "c1", "p1")


_REPLIES_BY_WORD: Mapping[str, Callable[[str, str, str], Content]] = {
    "location": _location,
    "contacts": _contacts,
    "order": _order,
    "reaction": _reaction,
    "system": _system,
    "unknown": _unknown,
    "ephemeral": _ephemeral,
    "reply": _reply,
    "forwarded": _forwarded,
    "referral": _referral,
    "product": _product,
}


class Behaviour(enum.Enum):
    """Kinds of robots. The value is the two digits after the prefix of a robot's number."""

    READS = "11"
    DELIVERED_ONLY = "12"
    OFFLINE = "13"
    ECHOES = "14"
    SLOW = "15"
    UNKNOWN = "16"
    BLOCKS = "17"
    ANSWERS = "18"

    @property
    def is_registered(self) -> bool:
        """Return whether the number exists on the network."""
        return self is not Behaviour.UNKNOWN

    @property
    def is_online(self) -> bool:
        """Return whether the robot ever logs in."""
        return self not in (Behaviour.UNKNOWN, Behaviour.OFFLINE)


PREFIX = "15550"
PREFIXES = (PREFIX,)
MAX_PER_KIND = 10_000
_SCHEME = 6  # digits behind a prefix

_READ = (SendReceipt(DELIVERED), SendReceipt(READ))
_DELIVERED = (SendReceipt(DELIVERED),)


def number_of(behaviour: Behaviour, index: int, prefix: str = PREFIX) -> str:
    """Return the number of a robot: 15550110000 is the first one that reads.

    index: among the robots of this kind, from 0
    """
    return f"{prefix}{behaviour.value}{index:04d}"


def behaviour_of(number: str, prefixes: Sequence[str] = PREFIXES) -> Behaviour | None:
    """Return the behaviour that a number stands for; `None` when it is not a robot's number."""
    prefix, scheme = number[:-_SCHEME], number[-_SCHEME:]
    if prefix not in prefixes or not scheme.isascii() or not scheme.isdigit():
        return None
    try:
        return Behaviour(scheme[:2])
    except ValueError:
        return None


def slow_delay(message_id: str) -> float:
    """Return a delay of 1 to 5 seconds, which depends only on the message."""
    return 1.0 + 4.0 * zlib.crc32(message_id.encode()) / 0xFFFFFFFF


def actions(behaviour: Behaviour | None, message: ReceivedMessage) -> tuple[Action, ...]:
    """Return the actions of a robot, in order, for a message that is on its disk. A number without behaviour reads."""
    match behaviour:
        case Behaviour.DELIVERED_ONLY:
            return _DELIVERED
        case Behaviour.OFFLINE | Behaviour.UNKNOWN:
            return ()
        case Behaviour.ECHOES:
            return (*_READ, _echo(message))
        case Behaviour.ANSWERS:
            content = reply_to(message)
            return _READ if content is None else (*_READ, SendContent(content))
        case Behaviour.SLOW:
            delay = slow_delay(message.id)
            return SendReceipt(DELIVERED, delay), SendReceipt(READ, delay)
        case _:
            if numbers.kind_of(message.number) is TestKind.NAMED:
                return (*_READ, _echo(message))
            count = numbers.replies_of(message.number)
            return (*_READ, *(SendText(f"reply {position} of {count}") for position in range(1, count + 1)))


def _echo(message: ReceivedMessage) -> Action:
    """Return a text or a file unchanged, and any other message as the text that a handset would show."""
    if message.type == "text":
        return SendText(message.text)
    if message.type in media_objects.KINDS and (found := pointers.find(message.type, message.raw)):
        return SendContent(pointers.content_of(found[0]))
    return SendText(reading.describe(message.type, message.raw)[: composing.MAX_TEXT])
