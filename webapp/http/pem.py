"""PEM parsing, and generation of the certificate that the API uses until one is uploaded."""

from __future__ import annotations

import datetime
import ipaddress
import itertools
import re
from collections.abc import Sequence
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Days of validity. Clients accept no longer validity of a certificate that is trusted manually.
VALID_DAYS = 825
RENEW_DAYS = 30

MAX_PEM = 256 * 1024  # bytes

_BEGIN = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_DAY = datetime.timedelta(days=1)
_PEM = serialization.Encoding.PEM


class UnusablePem(ValueError):
    """A key or certificates that cannot be used. `str()` explains why."""


class CertificateExpired(UnusablePem):
    """The certificate has expired or is not valid yet. Everything else about it is right."""


class CertificateBundle:
    """Private key, its certificate and the issuers of that, in this order, PEM."""

    def __init__(self, key: PrivateKeyTypes, certificates: Sequence[x509.Certificate]) -> None:
        self._key = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self._certificates = list(certificates)

    @classmethod
    def parse(cls, text: bytes, now: datetime.datetime) -> Self:
        """Parse and check an uploaded bundle.

        Raises `UnusablePem`, and `CertificateExpired` when only the time of validity is wrong.
        """
        try:
            return cls._parse(text, now)
        except UnusablePem:
            raise
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise UnusablePem(f"a certificate cannot be used: {_brief(error)}") from None

    @classmethod
    def _parse(cls, text: bytes, now: datetime.datetime) -> Self:
        kinds = _kinds(text)
        if not kinds or not kinds[0].endswith(b"PRIVATE KEY"):
            raise UnusablePem("should begin with a private key in PEM")
        try:
            key = serialization.load_pem_private_key(text, None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise UnusablePem(f"the private key cannot be read, it should not be encrypted: {_brief(error)}") from None
        if any(kind != b"CERTIFICATE" for kind in kinds[1:]):
            raise UnusablePem("after the private key only certificates should follow")
        if len(kinds) < 3:
            raise UnusablePem("after the private key should follow its certificate and at least one intermediate")
        chain = _certificates(text)
        spki = serialization.PublicFormat.SubjectPublicKeyInfo
        if key.public_key().public_bytes(_PEM, spki) != chain[0].public_key().public_bytes(_PEM, spki):
            raise UnusablePem("the first certificate is not that of the private key")
        for issued, issuer in itertools.pairwise(chain):
            try:
                issued.verify_directly_issued_by(issuer)
            except (ValueError, TypeError, InvalidSignature):
                raise UnusablePem(f"{_name(issued)} was not issued by {_name(issuer)}, which follows it") from None
        if not chain[0].not_valid_before_utc <= now <= chain[0].not_valid_after_utc:
            raise CertificateExpired(f"{_name(chain[0])} is not valid now")
        return cls(key, chain)

    @classmethod
    def load(cls, text: bytes) -> Self:
        """Load a bundle from the `pem` of one. Raises `UnusablePem` for anything else."""
        try:
            return cls(serialization.load_pem_private_key(text, None), x509.load_pem_x509_certificates(text))
        except (ValueError, TypeError):
            raise UnusablePem("should be a private key and certificates in PEM") from None

    @classmethod
    def make(cls, names: Sequence[str], now: datetime.datetime) -> Self:
        """Create a new key and a self-signed certificate for these host names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
        usage = x509.KeyUsage(True, False, False, False, False, True, False, False, False)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + VALID_DAYS * _DAY)
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, [certificate])

    @property
    def pem(self) -> bytes:
        """Return the key and all certificates, PEM."""
        return self._key + _join(self._certificates)

    @property
    def authorities(self) -> bytes:
        """Return the certificates that a client may trust, PEM: the issuers, or the certificate itself without any."""
        return _join(self._certificates[1:] or self._certificates)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the host names and addresses in the certificate."""
        try:
            found = self._certificates[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return ()
        addresses = found.get_values_for_type(x509.IPAddress)
        return (*found.get_values_for_type(x509.DNSName), *(str(address) for address in addresses))

    @property
    def ends(self) -> datetime.datetime:
        """Return the end of validity of the certificate itself."""
        return self._certificates[0].not_valid_after_utc

    def is_fresh(self, now: datetime.datetime) -> bool:
        """Return whether it stays valid for more than `RENEW_DAYS` days."""
        return now + RENEW_DAYS * _DAY < self.ends


def parse_authorities(text: bytes) -> bytes:
    """Return the certificates in `text`, without the text between them. Raises `UnusablePem`."""
    kinds = _kinds(text)
    if not kinds:
        raise UnusablePem("should be certificates in PEM")
    if any(kind != b"CERTIFICATE" for kind in kinds):
        raise UnusablePem("should hold certificates only")
    return _join(_certificates(text))


def _kinds(text: bytes) -> list[bytes]:
    """Return the kinds of the PEM blocks, in order."""
    # OpenSSL writes the curve before a key on a curve.
    return [kind for kind in _BEGIN.findall(text) if kind != b"EC PARAMETERS"]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificates(text: bytes) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(text)
    except (ValueError, x509.InvalidVersion) as error:
        raise UnusablePem(f"a certificate cannot be read: {_brief(error)}") from None
    if len(found) != _kinds(text).count(b"CERTIFICATE"):
        raise UnusablePem("a certificate cannot be read: it does not begin on a line of its own")
    return found


def _join(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(_PEM) for certificate in certificates)


def _name(certificate: x509.Certificate) -> str:
    return repr(certificate.subject.rfc4514_string()[:100])


def _brief(error: Exception) -> str:
    return str(error).partition("\n")[0][:120]
