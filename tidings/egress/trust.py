"""TLS verification of servers that this installation calls."""

from __future__ import annotations

import ssl
from pathlib import Path


def context(authorities: bytes = b"", revocations: Path | None = None) -> ssl.SSLContext:
    """Return a context that verifies servers and requires TLS 1.2 or later.

    An authority need not be a root, and may violate RFC 5280's rules for the extensions of a certificate, as a
    company's private authority often does. This is the same for all versions of Python.

    Raises `ssl.SSLError` for invalid authorities, `OSError` and `ValueError` for an unusable file of revocation lists.

    authorities: certificates in PEM; empty for the system's.
    revocations: PEM file of certificate revocation lists; `None` for no check. A server's certificate is refused if it
        is revoked, or if the file has no current list of its issuer.
    """
    made = ssl.create_default_context(cadata=authorities.decode() or None)
    # Set explicitly, because the system's configuration of OpenSSL may allow earlier versions.
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if revocations is not None:
        # A certificate in the file would be loaded as an authority.
        if b"-----BEGIN X509 CRL-----" not in (content := revocations.read_bytes()) or b"CERTIFICATE" in content:
            raise ValueError(f"{revocations} contains something other than certificate revocation lists in PEM")
        made.load_verify_locations(cafile=revocations)
        made.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return made
