"""What devices tell each other about the keys of groups, inside their sessions."""

from __future__ import annotations

from typing import Literal

import msgspec

from tidings.wire import addresses
from tidings.wire.content import NotUnderstood
from tidings.wire.decoding import UNREADABLE

SENDER_KEY = "sender_key"
SENDER_KEY_REQUEST = "sender_key_request"


class SenderKey(msgspec.Struct, gc=False):
    """distribution: a sender key distribution message."""

    group: str
    distribution: bytes


class SenderKeyRequest(msgspec.Struct, gc=False):
    """The peer has a message of ours in this group that it could not read."""

    group: str


class _SenderKeyContent(msgspec.Struct, gc=False):
    sender_key: SenderKey
    type: Literal["sender_key"] = "sender_key"


class _RequestContent(msgspec.Struct, gc=False):
    sender_key_request: SenderKeyRequest
    type: Literal["sender_key_request"] = "sender_key_request"


_sender_key = msgspec.json.Decoder(_SenderKeyContent)
_request = msgspec.json.Decoder(_RequestContent)


def encode_sender_key(group: str, distribution: bytes) -> bytes:
    """The content that gives a member our key."""
    return msgspec.json.encode(_SenderKeyContent(SenderKey(group, distribution)))


def encode_request(group: str) -> bytes:
    """The content that asks a member for its key."""
    return msgspec.json.encode(_RequestContent(SenderKeyRequest(group)))


def decode_control(kind: str, plaintext: bytes) -> SenderKey | SenderKeyRequest:
    """Raises `NotUnderstood`."""
    found: SenderKey | SenderKeyRequest
    try:
        if kind == SENDER_KEY:
            found = _sender_key.decode(plaintext).sender_key
        else:
            found = _request.decode(plaintext).sender_key_request
    except UNREADABLE as error:
        raise NotUnderstood(str(error)) from error
    if not addresses.is_group(found.group):
        raise NotUnderstood("not the id of a group")
    return found
