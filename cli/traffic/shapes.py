"""Shape of requests: when they came, of which type and size; nothing of what is in them, and of no number more than
that it is the same as before. And requests of such a shape, made up."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.wire.tap import Copied

MESSAGES, CONTACTS = "messages", "contacts"
# Characters of a text.
MAX_TEXT = 4096
# Recipients that are told apart; then all others are one.
MAX_RECIPIENTS = 1_000_000
UNKNOWN = "unknown"
_TYPES = frozenset(
    [
        *("text", "image", "audio", "video", "document", "sticker", "location", "contacts", "reaction"),
        *("interactive", "template", "hsm"),
    ]
)


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request.

    at:   seconds since the first; call: `messages` or `contacts`; size: bytes of its body.
    type: of a message; length: characters of its text; to: its recipient, by a number of the recording's own.
    many: numbers in a check of contacts; status: that it was answered with; took: milliseconds.
    """

    at: float
    call: str
    size: int
    type: str = ""
    length: int = 0
    to: int = 0
    many: int = 0
    status: int = 0
    took: float = 0.0


class Recipients:
    """Numbers of recipients in the order in which they were first written to."""

    def __init__(self) -> None:
        # What is kept of a number cannot be turned back into it, even by trying them all, without this.
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, int] = {}

    def index(self, number: str) -> int:
        """From 1 on."""
        digest = hashlib.blake2b(number.encode(), key=self._key, digest_size=8).digest()
        if len(self._known) >= MAX_RECIPIENTS:
            return self._known.get(digest, MAX_RECIPIENTS)
        return self._known.setdefault(digest, len(self._known) + 1)


def shape_of(copied: Copied, since: float, recipients: Recipients) -> Shape:
    """Of a request. since: Unix seconds of the first one."""
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
        # Whatever a client writes there is its own: only what is known is written down.
        type=type_ if isinstance(type_, str) and type_ in _TYPES else UNKNOWN,
        length=length,
        to=recipients.index(to) if isinstance(to, str) else 0,
    )


class Numbers:
    """Recipients of made-up requests: `count` numbers from `first` on, in turn."""

    def __init__(self, first: int, count: int) -> None:
        self._first = first
        self._count = count

    def number(self, index: int) -> str:
        return str(self._first + index % self._count)


def request_of(shape: Shape, numbers: Numbers) -> tuple[str, Mapping[str, Any]]:
    """Path and body of a request of this shape. What needs media or templates becomes a text of about its size."""
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


def redirected(copied: Copied, to: int, numbers: Numbers) -> tuple[str, Mapping[str, Any]] | None:
    """The request as it is, to numbers of another installation; `None` for one that was not copied in full."""
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
