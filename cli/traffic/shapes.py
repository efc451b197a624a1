"""Shapes of requests, and generated requests of the same shape.

A shape has the time, type and size of a request. It contains neither contents nor phone numbers: recipients are
numbered in the order of their first message.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.wire.decoding import UNREADABLE
from tidings.wire.tap import CopiedRequest

MESSAGES, CONTACTS = "messages", "contacts"
# Maximum characters of a text.
MAX_TEXT = 4096
# Recipients that are distinguished; all further ones share the last number.
MAX_RECIPIENTS = 1_000_000
UNKNOWN = "unknown"
_TYPES = frozenset(
    [
        *("text", "image", "audio", "video", "document", "sticker", "location", "contacts", "reaction"),
        *("interactive", "template", "hsm"),
    ]
)


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """Shape of one request."""

    at: float  # seconds since the first request
    call: str  # `messages` or `contacts`
    size: int  # bytes of the body
    type: str = ""  # type of a message; `unknown` for a type that is not listed here
    length: int = 0  # characters of a message's text
    to: int = 0  # index of a message's recipient in the recording, from 1; 0 for none
    many: int = 0  # phone numbers in a check of contacts
    status: int = 0  # HTTP status of the response
    took: float = 0.0  # milliseconds until the response


class RecipientIndexes:
    """Assigns an index to each recipient, in the order of their first message."""

    def __init__(self) -> None:
        # Without this key, the digests cannot be reversed by trying all phone numbers.
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, int] = {}

    def index(self, number: str) -> int:
        """Return the index of a recipient, from 1 to `MAX_RECIPIENTS`."""
        digest = hashlib.blake2b(number.encode(), key=self._key, digest_size=8).digest()
        if len(self._known) >= MAX_RECIPIENTS:
            return self._known.get(digest, MAX_RECIPIENTS)
        return self._known.setdefault(digest, len(self._known) + 1)


def shape_of(copied: CopiedRequest, since: float, recipients: RecipientIndexes) -> Shape:
    """Return the shape of a request.

    since: time of the first request, Unix seconds.
    """
    body = _decoded(copied.body)
    call = copied.path.rpartition("/")[2]
    common: dict[str, Any] = {
        "at": round(copied.at - since, 4),
        "call": call,
        "size": copied.size,
        "status": copied.status,
        "took": round(copied.took * 1000, 1),
    }
    if call == CONTACTS:
        contacts = body.get("contacts")
        return Shape(**common, many=len(contacts) if isinstance(contacts, list) else 0)
    type_ = body.get("type", "text")
    text = body.get("text")
    length = len(str(text.get("body", ""))) if isinstance(text, dict) else 0
    to = body.get("to")
    return Shape(
        **common,
        # Clients can send any text as the type; only known types are recorded.
        type=type_ if isinstance(type_, str) and type_ in _TYPES else UNKNOWN,
        length=length,
        to=recipients.index(to) if isinstance(to, str) else 0,
    )


class NumberRange:
    """Recipients of generated requests: `count` consecutive phone numbers from `first`; higher indices wrap around."""

    def __init__(self, first: int, count: int) -> None:
        self._first = first
        self._count = count

    def number(self, index: int) -> str:
        return str(self._first + index % self._count)


def request_of(shape: Shape, numbers: NumberRange) -> tuple[str, Mapping[str, Any]]:
    """Return path and body of a request of this shape. Messages with media or templates become texts of their size."""
    if shape.call == CONTACTS:
        some = [f"+{numbers.number(shape.to + index)}" for index in range(max(1, shape.many))]
        return "/v1/contacts", {"blocking": "wait", "contacts": some}
    length = shape.length if shape.type == "text" else shape.size
    text = "x" * max(1, min(length, MAX_TEXT))
    to = numbers.number(shape.to)
    if shape.type == "interactive":
        buttons = [{"type": "reply", "reply": {"id": "1", "title": "Yes"}}]
        interactive = {"type": "button", "body": {"text": text[:1024]}, "action": {"buttons": buttons}}
        return "/v1/messages", {"to": to, "type": "interactive", "interactive": interactive}
    return "/v1/messages", {"to": to, "type": "text", "text": {"body": text}}


def redirected(copied: CopiedRequest, to: int, numbers: NumberRange) -> tuple[str, Mapping[str, Any]] | None:
    """Return the request with the phone numbers of another installation; None if it was not copied in full.

    to: index of the recipient.
    """
    body = dict(_decoded(copied.body))
    if not body:
        return None
    if copied.path.endswith(CONTACTS):
        contacts = body.get("contacts")
        count = len(contacts) if isinstance(contacts, list) else 1
        return copied.path, {**body, "contacts": [f"+{numbers.number(to + index)}" for index in range(count)]}
    return copied.path, {**body, "to": numbers.number(to)}


def _decoded(body: bytes) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE:
        return {}
    return found if isinstance(found, dict) else {}
