"""Read the display name from the certificate that a business receives with its number."""

from __future__ import annotations

import base64
import binascii
import contextlib

from tidings.e2ee import errors, protobuf

MAX_NAME = 256

# Protobuf: a certificate has details (1) and a signature (2). Details have a serial (1), an issuer (2) and a name (4).
_DETAILS, _NAME = 1, 4


def display_name(cert: str) -> str | None:
    """Return the display name in a certificate, at most `MAX_NAME` characters.

    Returns `None` when the format is unknown. The signature is not verified.
    """
    with contextlib.suppress(errors.InvalidMessage, UnicodeDecodeError, binascii.Error):
        certificate = _parse(base64.b64decode(cert, validate=True))
        name = (protobuf.take_bytes(_parse(protobuf.take_bytes(certificate, _DETAILS) or b""), _NAME) or b"").decode()
        if name and name.isprintable():
            return name[:MAX_NAME]
    return None


def _parse(raw: bytes) -> dict[int, int | bytes]:
    return protobuf.parse(raw, 0, len(raw))
