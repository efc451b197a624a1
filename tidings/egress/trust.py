"""TLS verification of servers that this installation calls."""

from __future__ import annotations

import ssl
from pathlib import Path


def context(authorities: bytes = b"", revocations: Path | None = None) -> ssl.SSLContext:
    """Checks servers against these authorities, PEM, or against the system's when there are none. TLS 1.2 at least.

    revocations: a file of certificate revocation lists, PEM. With it, a server's certificate is refused when it is
    revoked, and also when the file has no current list of its issuer.

    The same with every Python: one that is trusted need not be a root, and may be older than RFC 5280's rules for what
    a certificate says of itself, as a company's own authority often is.
    Raises `ssl.SSLError` for what is no authority, `OSError` and `ValueError` for what is no file of such lists.
    """
    made = ssl.create_default_context(cadata=authorities.decode() or None)
    # Whatever the system's configuration of OpenSSL allows.
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if revocations is not None:
        # A certificate in it would be an authority.
        if b"-----BEGIN X509 CRL-----" not in (content := revocations.read_bytes()) or b"CERTIFICATE" in content:
            raise ValueError(f"{revocations} has other things in it than certificate revocation lists in PEM")
        made.load_verify_locations(cafile=revocations)
        made.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return made
