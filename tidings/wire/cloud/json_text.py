"""JSON as the Cloud API writes it: ASCII without blanks, with `/` as `\\/` and `@` as `\\u0040`."""

from __future__ import annotations

import json
from typing import Any

import msgspec

_compact = msgspec.json.Encoder().encode
_ascii = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), check_circular=False).encode


def encode(value: Any) -> bytes:
    """Encode a value. Characters above U+007F become `\\uXXXX` in lower case, those above U+FFFF two surrogates."""
    encoded = _compact(value)
    if not encoded.isascii():
        encoded = _ascii(msgspec.to_builtins(value)).encode()
    # Both characters occur in strings only, where their escaped form has the same meaning.
    return encoded.replace(b"/", b"\\/").replace(b"@", b"\\u0040")
