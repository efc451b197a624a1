"""Signatures in the URLs that an installation hands out."""

from __future__ import annotations

import base64
import hashlib
import hmac


class LinkSigner:
    """Signer of the values in URLs of one kind."""

    def __init__(self, kind: str, key: str) -> None:
        """Create a signer, whose signatures are valid for one kind of URL only.

        key: the link key, which all processes of the installation share
        """
        self._key = hashlib.sha256(f"tidings cloud {kind}\n{key}".encode()).digest()

    def sign(self, *values: str) -> str:
        """Return the signature of values, which must not contain line breaks: URL-safe text."""
        return base64.urlsafe_b64encode(hmac.digest(self._key, "\n".join(values).encode(), "sha256")[:24]).decode()

    def is_valid(self, signature: str, *values: str) -> bool:
        """Return whether `sign` made a signature of these values."""
        return hmac.compare_digest(self.sign(*values).encode(), signature.encode())
