"""What devices tell each other about the keys of groups, inside their sessions; and what the network says of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from handset.content import NotUnderstood
from tidings.wire import addresses
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


class Participant(msgspec.Struct, gc=False):
    number: str
    admin: bool


class Group(msgspec.Struct, gc=False):
    """A group as the network answers; epoch: grows when somebody joins or leaves. created_at: Unix seconds."""

    id: str
    subject: str
    creator: str
    created_at: int
    epoch: int
    has_icon: bool = False
    participants: Sequence[Participant] = ()


class Change(msgspec.Struct, gc=False):
    """The body of a `group_changed` envelope."""

    change: str
    by: str
    numbers: Sequence[str]
    subject: str
    epoch: int


_sender_key = msgspec.json.Decoder(_SenderKeyContent)
_request = msgspec.json.Decoder(_RequestContent)
_change = msgspec.json.Decoder(Change)


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


def decode_change(body: bytes) -> Change:
    """Raises `NotUnderstood`."""
    try:
        return _change.decode(body)
    except UNREADABLE as error:
        raise NotUnderstood(str(error)) from error


def decode_group(answer: Any) -> Group:
    """An answer of the network, as JSON decodes it. Raises `NotUnderstood`."""
    try:
        return msgspec.convert(answer, Group)
    except msgspec.ValidationError as error:
        raise NotUnderstood(str(error)) from error
