"""The tokens that devices log in with: 256 random bits, of which only a hash is kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets


def make() -> str:
    """A new token, in the letters of URLs."""
    return secrets.token_urlsafe(32)


def digest(token: str) -> bytes:
    """What is stored of it. A plain hash is enough: nobody can guess 256 bits."""
    return hashlib.sha256(token.encode()).digest()


def matches(token: str, stored: bytes) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(digest(token), stored)
