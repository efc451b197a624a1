"""Decode webhook bodies, with their statuses and messages, and verify their signatures."""

from __future__ import annotations

import base64
import hmac

import msgspec


class ErrorEntry(msgspec.Struct):
    details: str = ""


class StatusEntry(msgspec.Struct):
    id: str
    status: str
    errors: list[ErrorEntry] = []
    event_id: str = ""  # of one of several statuses in a body; empty for a single one


class TextEntry(msgspec.Struct):
    body: str = ""


class MessageEntry(msgspec.Struct):
    id: str
    sender: str = msgspec.field(name="from")
    text: TextEntry | None = None


class Body(msgspec.Struct):
    """Webhook body; other fields are ignored."""

    statuses: list[StatusEntry] = []
    messages: list[MessageEntry] = []


decode = msgspec.json.Decoder(Body).decode


class Verifier:
    """Verifies signatures of the Standard Webhooks specification, independently of the server's code.

    secret: `whsec_` and base64.
    """

    def __init__(self, secret: str) -> None:
        self._key = base64.b64decode(secret.removeprefix("whsec_"))

    def is_valid(self, headers: dict[bytes, bytes], body: bytes) -> bool:
        """Return whether one of the signatures is valid. headers: by lower-case name."""
        signed = b"%s.%s.%s" % (headers.get(b"webhook-id", b""), headers.get(b"webhook-timestamp", b""), body)
        expected = b"v1," + base64.b64encode(hmac.digest(self._key, signed, "sha256"))
        return any(hmac.compare_digest(expected, given) for given in headers.get(b"webhook-signature", b"").split())
