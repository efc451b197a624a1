"""A certificate that a listener makes for itself at its start. It encrypts, and proves nothing."""

from __future__ import annotations

import datetime
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tidings.runtime import tls

DAY = datetime.timedelta(days=1)
# A process that runs for longer has its certificate refused by clients that look at the end of it; those that cannot
# check the certificate do not.
VALID_DAYS = 3650


def make_context(name: str) -> ssl.SSLContext:
    """A context for a server, with a new key that is kept in memory alone. name: of the host, for people."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + VALID_DAYS * DAY)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.harden_server(context)
    # OpenSSL takes files only. The directory is ours alone.
    with tempfile.TemporaryDirectory(prefix="tidings-certificate-") as directory:
        path = Path(directory) / "certificate.pem"
        path.write_bytes(secret + certificate.public_bytes(pem))
        context.load_cert_chain(path)
    return context
