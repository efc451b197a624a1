"""Security headers of every response of the console."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

_NONCE_BYTES = 16

# Nothing is loaded from other hosts, nothing is inline, and only htmx writes HTML into a page.
_DIRECTIVES = (
    "default-src 'none'",
    "script-src 'nonce-{nonce}'",
    "style-src 'self'",
    "img-src 'self' blob:",
    "media-src 'self' blob:",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types htmx",
)
_ALWAYS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)


def make_nonce() -> str:
    """Return a nonce for the scripts of one response."""
    return secrets.token_urlsafe(_NONCE_BYTES)


def headers(nonce: str) -> Sequence[tuple[str, str]]:
    """Return the headers of a response whose scripts have this nonce."""
    return (("Content-Security-Policy", "; ".join(_DIRECTIVES).format(nonce=nonce)), *_ALWAYS)
