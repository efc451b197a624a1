"""Decode webhook bodies of the Cloud API, and verify their signatures."""

from __future__ import annotations

import hmac

import msgspec

from harness.webhook_body import Body, MessageEntry, StatusEntry
from tidings.wire.cloud import wamid

SIGNATURE = b"x-hub-signature-256"


class _Change(msgspec.Struct):
    value: Body


class _Entry(msgspec.Struct):
    changes: list[_Change]


class _Envelope(msgspec.Struct):
    """Webhook body; other fields are ignored."""

    entry: list[_Entry]


_decode = msgspec.json.Decoder(_Envelope).decode


def decode(body: bytes) -> Body:
    """Return the statuses and messages of all changes, with our own ids of messages.

    Raises `msgspec.MsgspecError` for a body in another format, or with an id that is no `wamid`.
    """
    values = [change.value for entry in _decode(body).entry for change in entry.changes]
    statuses = [StatusEntry(_own_id(status.id), status.status) for value in values for status in value.statuses]
    received = [message for value in values for message in value.messages]
    return Body(statuses, [MessageEntry(_own_id(one.id), one.sender, one.text) for one in received])


def _own_id(given: str) -> str:
    found = wamid.decode(given)
    if found is None:
        raise msgspec.ValidationError(f"not the id of a message: {given}")
    return found.message_id


class AppSecretVerifier:
    """Verifies `X-Hub-Signature-256`, independently of the server's code."""

    def __init__(self, secret: str) -> None:
        """secret: the app secret"""
        self._key = secret.encode()

    def is_valid(self, headers: dict[bytes, bytes], body: bytes) -> bool:
        """Return whether the signature is valid. headers: by lower-case name."""
        expected = b"sha256=" + hmac.digest(self._key, body, "sha256").hex().encode()
        return hmac.compare_digest(expected, headers.get(SIGNATURE, b""))
