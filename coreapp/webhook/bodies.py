"""The JSON bodies that go to the webhook: one message or one status in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from coreapp import codes
from tidings.storage.messages import Status

_encode = msgspec.json.encode

# The fields of an inbound message that its content cannot name as its type.
OWN_FIELDS = frozenset(("from", "id", "timestamp", "type", "errors", "context"))

_NAMES = {Status.SENT: "sent", Status.DELIVERED: "delivered", Status.READ: "read", Status.FAILED: "failed"}


def status(
    message_id: str, recipient: str, reached: Status, timestamp: int, error: tuple[int, str] | None = None
) -> bytes:
    """A `statuses` body. timestamp: Unix seconds; error: code and details, for `FAILED`."""
    entry: dict[str, Any] = {
        "id": message_id,
        "recipient_id": recipient,
        "status": _NAMES[reached],
        "timestamp": str(timestamp),
        "type": "message",
        "message": {"recipient_id": recipient},
    }
    if error is not None:
        code, details = error
        entry["errors"] = [{"code": code, "title": codes.TITLES.get(code, "Generic error"), "details": details}]
    return _encode({"statuses": [entry]})


def inbound(message_id: str, sender: str, name: str, timestamp: int, content: Mapping[str, Any]) -> bytes:
    """A `messages` body from a decrypted content, `{"type": …, <type>: {…}}`. timestamp: Unix seconds."""
    kind = str(content["type"])
    message = {"from": sender, "id": message_id, "timestamp": str(timestamp), "type": kind, kind: content[kind]}
    return _encode({"contacts": [{"profile": {"name": name}, "wa_id": sender}], "messages": [message]})


def unsupported(message_id: str, sender: str, name: str, timestamp: int) -> bytes:
    """A `messages` body of type `unknown`, for a content that we cannot read."""
    message = {
        "from": sender,
        "id": message_id,
        "timestamp": str(timestamp),
        "type": "unknown",
        "errors": [
            {
                "code": 501,
                "title": "Message type is not currently supported",
                "details": "Message type is not currently supported",
            }
        ],
    }
    return _encode({"contacts": [{"profile": {"name": name}, "wa_id": sender}], "messages": [message]})


def contacts(found: list[dict[str, str]]) -> bytes:
    """What became of contacts that were asked about with `no_wait`."""
    return _encode({"contacts": found})
