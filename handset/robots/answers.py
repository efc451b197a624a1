"""Replies of a robot to requests for a type of message: pure functions from a message to a content."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from handset import composing, reading
from handset.attachments import pointers
from handset.composing import Content
from tidings.media import kinds
from tidings.wire import media_objects

OTHER_KIND = "11"  # digits of the robot whose number is announced as the new one


def find(number: str, peer: str, message_id: str, kind: str, text: str, raw: str) -> Content | None:
    """Return the reply to a message; `None` when it requests nothing.

    A text requests a type by its first word (`location`, `order` …). The reply to a list, buttons, a template or
    products is the first choice that sends something. A file is returned unchanged by the same pointer, and Opus
    audio as a voice message.
    """
    if kind == "text":
        words = text.split(None, 1)
        make = _ASKED.get(words[0].lower()) if words else None
        return make(number, peer, message_id) if make is not None else None
    if kind in media_objects.KINDS:
        return _returned(kind, raw)
    answers = [choice.answer for choice in reading.read(kind, raw).choices if choice.answer is not None]
    return composing.answering(dict(answers[0]), message_id, peer) if answers else None


def _returned(kind: str, raw: str) -> Content | None:
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


_ASKED: Mapping[str, Callable[[str, str, str], Content]] = {
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
