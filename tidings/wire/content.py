"""Content of messages, as it is encrypted: UTF-8 JSON such as `{"type":"text","text":{"body":"…"}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.wire import addresses
from tidings.wire.decoding import UNREADABLE

TEXT = "text"
NULL = "null"  # completes a key exchange; not displayed
DELETED = "deleted"  # withdraws an earlier message
TYPING = "typing"  # the sender is writing; displayed for `TYPING_SECONDS`, and sent only in transient envelopes
SENDER_KEY, SENDER_KEY_REQUEST = "sender_key", "sender_key_request"  # between devices; not displayed

TYPING_SECONDS = 25.0

NULL_CONTENT = b'{"type":"null"}'


class Text(msgspec.Struct, gc=False):
    body: str  # the API allows 4,096 characters; this is not enforced here


class Content(msgspec.Struct, gc=False, omit_defaults=True):
    """Content of one message, as far as it is decoded. For types other than `text` callers keep the JSON itself."""

    type: str
    text: Text | None = None  # None for other types
    context: Any = None  # names the message that this one replies to, in the sender's form


class SenderKey(msgspec.Struct, gc=False):
    """Key for the sender's messages to a group."""

    group: str
    distribution: bytes  # distribution message of `tidings.e2ee`


class SenderKeyRequest(msgspec.Struct, gc=False):
    """Request for the recipient's sender key of a group, whose messages the sender cannot read."""

    group: str


class _SenderKeyContent(msgspec.Struct, gc=False, tag_field="type", tag=SENDER_KEY):
    sender_key: SenderKey


class _SenderKeyRequestContent(msgspec.Struct, gc=False, tag_field="type", tag=SENDER_KEY_REQUEST):
    sender_key_request: SenderKeyRequest


class UnreadableContent(ValueError):
    """The plaintext is not valid content."""


_decoder = msgspec.json.Decoder(Content)
_about_keys = msgspec.json.Decoder(_SenderKeyContent | _SenderKeyRequestContent)
_encoder = msgspec.json.Encoder()


def decode(plaintext: bytes) -> Content:
    """Decode the content of a message. Raises `UnreadableContent`."""
    try:
        content = _decoder.decode(plaintext)
    except UNREADABLE as error:
        raise UnreadableContent(str(error)) from error
    if content.type == TEXT and content.text is None:
        raise UnreadableContent("a text without its body")
    return content


def text_of(raw: str) -> str:
    """Return the body of a text message from its JSON; empty for other messages and invalid JSON."""
    try:
        text = decode(raw.encode()).text
    except UnreadableContent:
        return ""
    return text.body if text is not None else ""


def encode(content: Mapping[str, Any], name: str = "") -> bytes:
    """Encode any content.

    name: the sender's profile name, which is added; empty for none
    """
    return _encoder.encode({**content, "profile": {"name": name}} if name else content)


def encode_text(body: str) -> bytes:
    """Encode a text message."""
    return _encoder.encode(Content(TEXT, Text(body)))


def encode_typing(message_id: str) -> bytes:
    """Encode a typing indicator.

    message_id: message that the sender is answering
    """
    return _encoder.encode(Content(TYPING, context={"id": message_id}))


def encode_sender_key(group: str, distribution: bytes) -> bytes:
    """Encode a content that hands over a sender key."""
    return _encoder.encode(_SenderKeyContent(SenderKey(group, distribution)))


def encode_sender_key_request(group: str) -> bytes:
    """Encode a content that requests the recipient's sender key."""
    return _encoder.encode(_SenderKeyRequestContent(SenderKeyRequest(group)))


def decode_about_keys(plaintext: bytes) -> SenderKey | SenderKeyRequest:
    """Decode a content that is a sender key or a request for one. Raises `UnreadableContent`."""
    try:
        content = _about_keys.decode(plaintext)
    except UNREADABLE as error:
        raise UnreadableContent(str(error)) from error
    found = content.sender_key if isinstance(content, _SenderKeyContent) else content.sender_key_request
    if not addresses.is_group(found.group):
        raise UnreadableContent("not the id of a group")
    return found
