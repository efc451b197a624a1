"""Signatures of callbacks by the Standard Webhooks specification (version 1, symmetric)."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"


def secret_bytes(secret: str) -> bytes:
    """Return the key of a `whsec_…` secret, 24 to 64 bytes. Raises `ValueError`."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("a webhook secret is whsec_ followed by base64") from error
    if not 24 <= len(key) <= 64:
        raise ValueError(f"a webhook secret has 24 to 64 bytes, not {len(key)}")
    return key


def headers(keys: Sequence[bytes], event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the three headers of one attempt, with one signature per key.

    timestamp: time of the attempt, not of the event, Unix seconds
    """
    signed = b"%s.%d.%s" % (event_id.encode(), timestamp, body)
    signatures = " ".join(["v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys])
    return {"webhook-id": event_id, "webhook-timestamp": str(timestamp), "webhook-signature": signatures}
