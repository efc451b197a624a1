"""TLS verification of servers that this installation calls."""

from __future__ import annotations

import ssl


def context(authorities: bytes = b"") -> ssl.SSLContext:
    """Return a context that verifies servers against these authorities (PEM), or against the system's when empty.

    Raises `ssl.SSLError` for invalid authorities.

    Every Python version verifies alike: a trusted authority need not be a root, and its certificate need not follow the
    rules of RFC 5280, which a company's own authority often does not.
    """
    made = ssl.create_default_context(cadata=authorities.decode() or None)
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return made
