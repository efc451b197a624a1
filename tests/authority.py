"""Certificate authority for tests."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from tidings.net.tls import TlsFiles

NOW = datetime.datetime.now(datetime.UTC)
_PEM = serialization.Encoding.PEM


class Authority:
    """Authority that issues certificates for host names and addresses.

    old: True for an own certificate without a key usage.
    """

    def __init__(self, name: str = "Authority of the tests", *, old: bool = False) -> None:
        self._old = old
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._build(self.subject, self.key, [], ca=True)
        self.pem = self.certificate.public_bytes(_PEM)

    def issue(self, *names: str, days: int = 30, of_rsa: bool = False) -> tuple[bytes, bytes]:
        """Return (private key, certificate) in PEM.

        days: time until the certificate expires.
        of_rsa: True for an RSA key, False for an elliptic curve.
        """
        key = rsa.generate_private_key(65537, 2048) if of_rsa else ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        certificate = self._build(subject, key, list(names), ca=False, days=days)
        return private_key(key), certificate.public_bytes(_PEM)

    def revocations(self, *certificates: bytes, days: int = 7) -> bytes:
        """Return a revocation list of these certificates, all in PEM.

        days: time until the next list is due.
        """
        due = NOW + datetime.timedelta(days=days)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.subject).next_update(due)
        builder = builder.last_update(NOW - datetime.timedelta(days=30))
        for pem in certificates:
            serial = x509.load_pem_x509_certificate(pem).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(NOW)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(_PEM)

    def bundle(self, *names: str, days: int = 30) -> bytes:
        """Return key, certificate and authority in PEM, as they are uploaded."""
        return b"".join((*self.issue(*names, days=days), self.pem))

    def files(self, directory: Path, name: str, *names: str, days: int = 30, of_rsa: bool = False) -> TlsFiles:
        """Write a new certificate, its key and this authority's certificate to files of the directory."""
        key, certificate = self.issue(*names, days=days, of_rsa=of_rsa)
        paths = [directory / f"{name}.{ending}" for ending in ("pem", "key", "ca")]
        for path, content in zip(paths, (certificate, key, self.pem), strict=True):
            path.write_bytes(content)
        return TlsFiles(*map(str, paths))

    def server_context(self, directory: Path, *names: str) -> ssl.SSLContext:
        """Return the TLS context of a server with a new certificate."""
        path = directory / "server.pem"
        path.write_bytes(b"".join(self.issue(*names)))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _build(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, names: list[str], *, ca: bool, days: int = 30
    ) -> x509.Certificate:
        public = self.key.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - datetime.timedelta(days=60))
            .not_valid_after(NOW + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        )
        if ca and not self._old:
            usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), False)
        return builder.sign(self.key, hashes.SHA256())


def private_key(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    """Return the private key in PEM.

    password: encrypts the key; None for no encryption.
    """
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        protection = serialization.BestAvailableEncryption(password)
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, protection)


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
