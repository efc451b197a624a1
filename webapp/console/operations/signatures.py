"""Check of a callback's signature by the Standard Webhooks specification, as a receiver does it."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hmac

PREFIX = "whsec_"
# Seconds that a timestamp may differ from the receiver's clock.
TOLERANCE = 300


@dataclasses.dataclass(frozen=True, slots=True)
class SignatureCheck:
    """Result of a check: names in the table `signature` of `strings.toml`."""

    is_valid: bool
    reason: str
    expected: str = ""  # signature that the secret makes; empty when there is none


def check(*, secret: str, event_id: str, timestamp: str, signatures: str, body: str, now: float) -> SignatureCheck:
    """Check the headers `webhook-id`, `webhook-timestamp` and `webhook-signature` of a body.

    now: Unix seconds
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return SignatureCheck(False, "wrong_secret")
    if not 24 <= len(key) <= 64:
        return SignatureCheck(False, "wrong_secret")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15):
        return SignatureCheck(False, "wrong_timestamp")
    signed = f"{event_id}.{timestamp}.{body}".encode()
    expected = "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    matches = any(hmac.compare_digest(each.encode(), expected.encode()) for each in signatures.split())
    if not matches:
        return SignatureCheck(False, "differs", expected)
    if abs(now - int(timestamp)) > TOLERANCE:
        return SignatureCheck(True, "old", expected)
    return SignatureCheck(True, "valid", expected)
