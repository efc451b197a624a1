"""What is inside the encryption: UTF-8 JSON such as `{"type":"text","text":{"body":"…"}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.wire.decoding import UNREADABLE

TEXT_TYPE = "text"
EMPTY_TYPE = "null"
EMPTY = b'{"type":"null"}'  # completes a key exchange; shown to nobody


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


class NotUnderstood(ValueError):
    """The plaintext is not such JSON."""


_decoder = msgspec.json.Decoder(Content)
_encoder = msgspec.json.Encoder()


def decode(plaintext: bytes) -> Content:
    """Raises `NotUnderstood`."""
    try:
        content = _decoder.decode(plaintext)
    except UNREADABLE as error:
        raise NotUnderstood(str(error)) from error
    if content.type == "text" and content.text is None:
        raise NotUnderstood("a text without its body")
    return content


def text_of(raw: str) -> str:
    """The words of a text, by its JSON; empty for what is none."""
    try:
        text = decode(raw.encode()).text
    except NotUnderstood:
        return ""
    return text.body if text is not None else ""


def encode(content: Mapping[str, Any], name: str = "") -> bytes:
    """Any content, with the name of whoever sends it unless that is empty."""
    return _encoder.encode({**content, "profile": {"name": name}} if name else content)


def encode_text(body: str) -> bytes:
    """A text message."""
    return _encoder.encode(Content("text", Text(body)))
