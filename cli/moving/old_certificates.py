"""Certificates that were uploaded to an old installation."""

from __future__ import annotations

import datetime

from cryptography import x509

from cli.moving.findings import OldPart, refused, to_set
from webapp.http import pem
from webapp.http.pem import CertificateBundle, UnusablePem

BEGIN = b"-----BEGIN "


def describe(text: bytes, file: str, now: datetime.datetime) -> OldPart:
    """Return what becomes of a PEM file: authorities of webhook servers, or the API's key and certificates."""
    is_bundle = b"PRIVATE KEY-----" in text
    name = f"{'API certificate' if is_bundle else 'webhook authorities'} in {file}"
    try:
        if is_bundle:
            CertificateBundle.parse(text, now)
            return to_set(name, "POST /v1/certificates/external")
        found = x509.load_pem_x509_certificates(pem.parse_authorities(text))
    except UnusablePem as error:
        return refused(name, f"the certificate {error}" if str(error).startswith("should") else str(error))
    expired = [one.subject.rfc4514_string()[:60] for one in found if one.not_valid_after_utc < now]
    if expired:
        return refused(name, f"{expired[0]} has expired")
    return to_set(name, "POST /v1/certificates/webhooks/ca")
