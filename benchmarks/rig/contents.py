"""Messages that benchmarks send: texts, templates and documents, each with a unique content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from handset import reading
from harness import ledger
from harness.client import FILE_ID, Business, Message, text_message

# Bytes of an ordinary text.
TEXT = 100
# Characters of the longest text; longer messages are documents.
MOST_TEXT = 4096
# Characters of a template's body once it is filled in.
MOST_BODY = 1024
PDF = "application/pdf"
TEMPLATES: tuple[Mapping[str, Any], ...] = (
    {
        "name": "bench_order",
        "language": "en_US",
        "category": "UTILITY",
        "components": [
            {"type": "HEADER", "format": "TEXT", "text": "Order {{1}}"},
            {"type": "BODY", "text": "Hello {{1}}, your order comes on {{2}}."},
            {"type": "FOOTER", "text": "Reply STOP to stop"},
            {
                "type": "BUTTONS",
                "buttons": [
                    {"type": "QUICK_REPLY", "text": "Thanks"},
                    {"type": "URL", "text": "Track", "url": "https://example.com/{{1}}"},
                ],
            },
        ],
    },
    {
        "name": "bench_bill",
        "language": "en_US",
        "category": "UTILITY",
        "components": [
            {"type": "HEADER", "format": "DOCUMENT"},
            {"type": "BODY", "text": "Hello {{1}}, here is your bill."},
            {"type": "FOOTER", "text": "Reply STOP to stop"},
            {"type": "BUTTONS", "buttons": [{"type": "QUICK_REPLY", "text": "Thanks"}]},
        ],
    },
)


async def create_templates(business: Business) -> None:
    """Create the templates of `template` and `sized_template`. Raises `UnexpectedResponse`."""
    for definition in TEMPLATES:
        await business.check_call("POST", "/v1/configs/templates", definition)


def text(number: str, words: str, size: int = TEXT) -> Message:
    """Return a text of `size` bytes that starts with `words`, which must be unique to this message."""
    return text_message(number, words.ljust(size, "."))


def template(number: str, order: str, name: str = "Ada", day: str = "Monday") -> Message:
    """Return a template message with header, body, footer and two buttons.

    order: word of at most 50 characters, unique to this message
    """
    components = [
        {"type": "header", "parameters": [_words(order)]},
        {"type": "body", "parameters": [_words(name), _words(day)]},
        {
            "type": "button",
            "sub_type": "quick_reply",
            "index": 0,
            "parameters": [{"type": "payload", "payload": order}],
        },
        {"type": "button", "sub_type": "url", "index": 1, "parameters": [_words(order)]},
    ]
    shown = [
        f"Order {order}",
        f"Hello {name}, your order comes on {day}.",
        "Reply STOP to stop",
        "  1. Thanks",
        f"  2. Track (https://example.com/{order})",
    ]
    body = {"name": "bench_order", "language": {"code": "en_US"}, "components": components}
    return Message(number, _body(number, "template", body), ledger.digest("\n".join(shown)))


def sized_template(number: str, order: str, size: int) -> Message:
    """Return a template message whose parameters have `size` bytes; beyond 1,024 its header is a file of that size."""
    if size <= MOST_BODY:
        # The order is filled in three times, and the limit applies to the whole body.
        return template(number, order, "a" * max(1, min(size - 3 * len(order) - len("Monday"), MOST_BODY - 35)))
    filename = f"{order}.pdf"
    file = _file(order, size)
    components = [
        {
            "type": "header",
            "parameters": [{"type": "document", "document": {"id": FILE_ID.decode(), "filename": filename}}],
        },
        {"type": "body", "parameters": [_words("Ada")]},
        {
            "type": "button",
            "sub_type": "quick_reply",
            "index": 0,
            "parameters": [{"type": "payload", "payload": order}],
        },
    ]
    shown = [_shown_file(filename, size), "Hello Ada, here is your bill.", "Reply STOP to stop", "  1. Thanks"]
    body = {"name": "bench_bill", "language": {"code": "en_US"}, "components": components}
    return Message(number, _body(number, "template", body), ledger.digest("\n".join(shown)), file, PDF)


def sized(number: str, words: str, size: int) -> Message:
    """Return a message of `size` bytes: a text, or beyond its limit a document.

    words: unique to this message, and valid as a file name
    """
    if size <= MOST_TEXT:
        return text(number, words, size)
    filename = f"{words}.pdf"
    body = _body(number, "document", {"id": FILE_ID.decode(), "filename": filename})
    return Message(number, body, ledger.digest(_shown_file(filename, size)), _file(words, size), PDF)


def _words(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def _body(number: str, kind: str, content: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"to": number, "type": kind, kind: content})


def _file(words: str, size: int) -> bytes:
    """Return the content of a file that is unique and does not compress."""
    head = f"%PDF-1.4\n% {words}\n".encode()
    return head + hashlib.shake_128(head).digest(size - len(head))


def _shown_file(filename: str, size: int) -> str:
    content = {"document": {"filename": filename, "mime_type": PDF, "size": size}}
    return reading.describe("document", msgspec.json.encode(content).decode())
