"""Signatures of webhooks in the Cloud API: HMACs with the secret of the app over the exact bytes of the body."""

from __future__ import annotations

import hmac
from collections.abc import Sequence


def headers(keys: Sequence[bytes], event_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of one webhook. `webhook-id` is ours: it is the same for each attempt.

    keys: the secret of the app, once
    timestamp: ignored, because these signatures cover the body only
    """
    (key,) = keys
    return {
        "webhook-id": event_id,
        "X-Hub-Signature": f"sha1={hmac.digest(key, body, 'sha1').hex()}",
        "X-Hub-Signature-256": f"sha256={hmac.digest(key, body, 'sha256').hex()}",
    }
