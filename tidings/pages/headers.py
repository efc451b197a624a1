"""Headers of responses to a browser: the policy of a page with its nonce, and those of files that are no pages."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from urllib.parse import quote

# A file of another person that is opened as a document may do nothing.
FILE_POLICY = "sandbox; default-src 'none'; frame-ancestors 'none'"

_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def make_nonce() -> str:
    """Return a new nonce for the scripts of one page."""
    return secrets.token_urlsafe(16)


def policy(nonce: str) -> str:
    """Return the content security policy of a page whose scripts have this nonce."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'nonce-{nonce}'",
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
    )


def of_page(nonce: str) -> Mapping[str, str]:
    """Return the headers of a page, which no cache keeps."""
    return {**_ALWAYS, "Content-Security-Policy": policy(nonce), "Cache-Control": "no-store"}


def of_asset(*, lasting: bool) -> Mapping[str, str]:
    """Return the headers of a style sheet, script or picture of our own.

    lasting: whether its URL names its content, so that caches may keep it
    """
    kept = "public, max-age=31536000, immutable" if lasting else "no-cache"
    return {**_ALWAYS, "Content-Security-Policy": FILE_POLICY, "Cache-Control": kept}


def of_stream() -> Mapping[str, str]:
    """Return the headers of an event stream."""
    return {**_ALWAYS, "Content-Security-Policy": FILE_POLICY, "Cache-Control": "no-store"}


def of_file(name: str) -> Mapping[str, str]:
    """Return the headers of a file of another person, which is never a document of our origin.

    A page can embed it as a picture or sound; opened by itself it is saved.
    """
    plain = "".join(c if (c.isascii() and c.isalnum()) or c in "._-" else "_" for c in name)[:100] or "file"
    return {
        **_ALWAYS,
        "Content-Security-Policy": FILE_POLICY,
        "Cache-Control": "private, max-age=3600",
        "Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}",
    }
