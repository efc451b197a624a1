"""Tokens that devices log in with: 256 random bits, of which only a hash is stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets


def make() -> str:
    """Return a new URL-safe token."""
    return secrets.token_urlsafe(32)


def digest(token: str) -> bytes:
    """Return the hash to store. A plain hash is enough, because 256 random bits cannot be guessed."""
    return hashlib.sha256(token.encode()).digest()


def matches(token: str, stored: bytes) -> bool:
    """Return whether a token has the stored hash, compared in constant time."""
    return hmac.compare_digest(digest(token), stored)
