"""User name and password of HTTP Basic authentication."""

from __future__ import annotations

import base64
import binascii
import contextlib

# Longer credentials are wrong, so that comparing and hashing stays cheap.
_MAX_CREDENTIALS = 1_024


def parse(header: bytes) -> tuple[str, str] | None:
    """Return the user name and password in a header's value; `None` when it contains none."""
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() == b"basic" and len(encoded) <= _MAX_CREDENTIALS:
        with contextlib.suppress(binascii.Error):
            username, colon, password = _text(base64.b64decode(encoded.strip(), validate=True)).partition(":")
            if colon and username:
                return username, password
    return None


def _text(raw: bytes) -> str:
    # Clients differ in how they encode characters beyond ASCII.
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
