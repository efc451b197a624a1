"""Self-signed certificate that a listener generates when it starts. It encrypts, and authenticates nothing."""

from __future__ import annotations

import datetime
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tidings.net import tls

DAY = datetime.timedelta(days=1)
# In a process that runs for longer, clients that check the expiry refuse the certificate; clients that do not verify
# certificates do not check it.
VALID_DAYS = 3650


def make_context(name: str) -> ssl.SSLContext:
    """Return a server context with a new key, which stays in memory. name: host name, for information only."""
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
    # OpenSSL reads only files. Only this user has access to the directory.
    with tempfile.TemporaryDirectory(prefix="tidings-certificate-") as directory:
        path = Path(directory) / "certificate.pem"
        path.write_bytes(secret + certificate.public_bytes(pem))
        context.load_cert_chain(path)
    return context
