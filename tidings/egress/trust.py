"""How the servers that we call are checked over TLS."""

from __future__ import annotations

import ssl


def context(authorities: bytes = b"") -> ssl.SSLContext:
    """Checks servers against these authorities, PEM, or against the system's when there are none.

    The same with every Python: one that is trusted need not be a root, and may be older than RFC 5280's rules for what
    a certificate says of itself, as a company's own authority often is.
    Raises `ssl.SSLError` for what is no authority.
    """
    made = ssl.create_default_context(cadata=authorities.decode() or None)
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return made
