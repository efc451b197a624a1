"""What is inside the encryption: UTF-8 JSON such as `{"type":"text","text":{"body":"…"}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.wire import addresses
from tidings.wire.decoding import UNREADABLE

TEXT = "text"
NULL = "null"  # completes a key exchange; shown to nobody
DELETED = "deleted"  # withdraws an earlier message
SENDER_KEY, SENDER_KEY_REQUEST = "sender_key", "sender_key_request"  # between devices; shown to nobody

NULL_CONTENT = b'{"type":"null"}'


class Text(msgspec.Struct, gc=False):
    """body: at most 4,096 characters by the API's rules; not enforced here."""

    body: str


class Content(msgspec.Struct, gc=False, omit_defaults=True):
    """One message. Of types other than `text` the JSON itself is kept.

    context: names the message that this one answers, in whatever form its sender gave it.
    """

    type: str
    text: Text | None = None
    context: Any = None


class SenderKey(msgspec.Struct, gc=False):
    """The key of the sender's messages to a group. distribution: as of `tidings.e2ee`."""

    group: str
    distribution: bytes


class SenderKeyRequest(msgspec.Struct, gc=False):
    """The sender cannot read the recipient's messages to a group."""

    group: str


class _SenderKeyContent(msgspec.Struct, gc=False, tag_field="type", tag=SENDER_KEY):
    sender_key: SenderKey


class _SenderKeyRequestContent(msgspec.Struct, gc=False, tag_field="type", tag=SENDER_KEY_REQUEST):
    sender_key_request: SenderKeyRequest


class UnreadableContent(ValueError):
    """The plaintext is not such JSON."""


_decoder = msgspec.json.Decoder(Content)
_about_keys = msgspec.json.Decoder(_SenderKeyContent | _SenderKeyRequestContent)
_encoder = msgspec.json.Encoder()


def decode(plaintext: bytes) -> Content:
    """Raises `UnreadableContent`."""
    try:
        content = _decoder.decode(plaintext)
    except UNREADABLE as error:
        raise UnreadableContent(str(error)) from error
    if content.type == TEXT and content.text is None:
        raise UnreadableContent("a text without its body")
    return content


def text_of(raw: str) -> str:
    """The words of a text, by its JSON; empty for what is none."""
    try:
        text = decode(raw.encode()).text
    except UnreadableContent:
        return ""
    return text.body if text is not None else ""


def encode(content: Mapping[str, Any], name: str = "") -> bytes:
    """Any content, with the name of whoever sends it unless that is empty."""
    return _encoder.encode({**content, "profile": {"name": name}} if name else content)


def encode_text(body: str) -> bytes:
    """A text message."""
    return _encoder.encode(Content(TEXT, Text(body)))


def encode_sender_key(group: str, distribution: bytes) -> bytes:
    """Hands a sender key over."""
    return _encoder.encode(_SenderKeyContent(SenderKey(group, distribution)))


def encode_sender_key_request(group: str) -> bytes:
    """Asks for the sender key of whom it is sent to."""
    return _encoder.encode(_SenderKeyRequestContent(SenderKeyRequest(group)))


def decode_about_keys(plaintext: bytes) -> SenderKey | SenderKeyRequest:
    """A content of one of these two types. Raises `UnreadableContent`."""
    try:
        content = _about_keys.decode(plaintext)
    except UNREADABLE as error:
        raise UnreadableContent(str(error)) from error
    found = content.sender_key if isinstance(content, _SenderKeyContent) else content.sender_key_request
    if not addresses.is_group(found.group):
        raise UnreadableContent("not the id of a group")
    return found
