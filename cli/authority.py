"""Private certificate authority of an installation, and the certificates of its processes, in one directory."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cli.guard import CommandFailure
from tidings.config import host_names
from tidings.secrets import private_files

AUTHORITY = "ca"
AUTHORITY_DAYS = 3650
# A certificate is renewed when it expires within this many days.
RENEW_DAYS = 30

# Minimum number of characters of a seed.
SEED_LENGTH = 32
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

_DAY = datetime.timedelta(days=1)
_PEM = serialization.Encoding.PEM
_USAGES = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Authority:
    """Certificate authority stored as `ca.pem` and `ca.key` in a directory.

    Key files have mode 0600, certificate files 0644.
    """

    directory: Path
    _: dataclasses.KW_ONLY
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    now: datetime.datetime

    @classmethod
    def of_seed(cls, directory: Path, seed: str, now: datetime.datetime) -> Authority:
        """Return the authority whose key is derived from a seed. Raises `CommandFailure` and `OSError`.

        All processes with the seed have the same authority, so each trusts the certificates of the others. The key is
        not written to the directory.

        seed: secret of at least `SEED_LENGTH` characters.
        """
        if len(seed) < SEED_LENGTH:
            raise CommandFailure(f"the seed of the authority is shorter than {SEED_LENGTH} characters")
        private_files.make_directory(directory)
        key = _derive_key(seed)
        certificate = _certify(_name("Tidings authority"), key, None, (key, []), now, AUTHORITY_DAYS * _DAY)
        private_files.replace(directory / f"{AUTHORITY}.pem", certificate.public_bytes(_PEM), 0o644)
        return cls(directory, key=key, certificate=certificate, now=now)

    @classmethod
    def open(cls, directory: Path, now: datetime.datetime) -> tuple[Authority, bool]:
        """Load the directory's authority, or create it. Returns the authority and whether it was created.

        Raises `CommandFailure` when the files are incomplete, unreadable or expired, and `OSError`.
        """
        private_files.make_directory(directory)
        path, key_path = directory / f"{AUTHORITY}.pem", directory / f"{AUTHORITY}.key"
        try:
            if not path.exists():
                # A key without a certificate remains when the process ended between the two writes.
                key = _load_key(key_path) if key_path.exists() else ec.generate_private_key(ec.SECP256R1())
                certificate = _certify(_name("Tidings authority"), key, None, (key, []), now, AUTHORITY_DAYS * _DAY)
                _write(directory, AUTHORITY, key, certificate)
                return cls(directory, key=key, certificate=certificate, now=now), True
            loaded = _load_key(key_path)
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except FileNotFoundError as error:
            raise CommandFailure(
                f"{error.filename} is missing: create certificates where the authority's key is"
            ) from error
        except (ValueError, TypeError) as error:
            raise CommandFailure(f"{path} or {key_path} cannot be read: {str(error)[:100]}") from error
        if loaded.public_key() != certificate.public_key():
            raise CommandFailure(f"{key_path} is not the key of {path}")
        if certificate.not_valid_after_utc <= now:
            raise CommandFailure(
                f"{path} has expired: move it and {key_path} away, and give every process the new ones"
            )
        return cls(directory, key=loaded, certificate=certificate, now=now), False

    def renew(self, name: str, hosts: Sequence[str], days: int, *, anyway: bool) -> tuple[datetime.datetime, bool]:
        """Issue a certificate for a process unless a good one exists. Returns its expiry and whether it is new.

        An existing certificate is kept if this authority issued it for exactly these hosts and it is valid for more
        than `RENEW_DAYS` days. Raises `CommandFailure` for an invalid host.

        days: validity of a new certificate, in days, at most that of the authority.
        anyway: issue a new one even if the existing one is good.
        """
        names = [_general_name(host) for host in hosts]
        present = self._find(name)
        if present is not None and not anyway and self._holds(present, names):
            return present.not_valid_after_utc, False
        key = ec.generate_private_key(ec.SECP256R1())
        # No certificate outlives that of its authority.
        time = min(days * _DAY, self.certificate.not_valid_after_utc - self.now)
        made = _certify(_name(name), key, self.certificate, (self.key, names), self.now, time)
        _write(self.directory, name, key, made)
        return made.not_valid_after_utc, True

    def _find(self, name: str) -> x509.Certificate | None:
        path, key_path = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        try:
            found = x509.load_pem_x509_certificate(path.read_bytes())
            key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        except (OSError, ValueError, TypeError):
            return None
        return found if key.public_key() == found.public_key() else None

    def _holds(self, present: x509.Certificate, names: Sequence[x509.GeneralName]) -> bool:
        try:
            present.verify_directly_issued_by(self.certificate)
            held = present.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return False
        return list(held) == list(names) and present.not_valid_after_utc - self.now > RENEW_DAYS * _DAY


def _derive_key(seed: str) -> ec.EllipticCurvePrivateKey:
    # 128 bits more than the order of the curve, so that all keys are practically equally probable.
    derived = HKDF(hashes.SHA256(), length=48, salt=None, info=b"Tidings authority P-256").derive(seed.encode())
    return ec.derive_private_key(int.from_bytes(derived, "big") % (_P256_ORDER - 1) + 1, ec.SECP256R1())


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Load an elliptic-curve private key. Raises `OSError`, `ValueError` and `TypeError`."""
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key of an elliptic curve")
    return key


def _certify(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    signing: tuple[ec.EllipticCurvePrivateKey, Sequence[x509.GeneralName]],
    now: datetime.datetime,
    time: datetime.timedelta,
) -> x509.Certificate:
    """Return a signed certificate.

    issuer: certificate of the authority; None for the authority's own certificate.
    signing: private key that signs, and the subject's alternative names (unused for an authority).
    """
    own, names = signing
    is_authority = issuer is None
    usage = x509.KeyUsage(not is_authority, False, False, False, False, is_authority, is_authority, False, False)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # One hour of tolerance for clocks that run slow.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + time)
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own.public_key()), critical=False)
    )
    if not is_authority:
        builder = builder.add_extension(_USAGES, critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(own, hashes.SHA256())


def _write(directory: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    """Write key, then certificate; each file is replaced atomically.

    A process that reads a new key with an old certificate keeps the pair that it has loaded.
    """
    private = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    for ending, content, mode in (("key", private, 0o600), ("pem", certificate.public_bytes(_PEM), 0o644)):
        private_files.replace(directory / f"{name}.{ending}", content, mode)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    if not host_names.is_name(host.removesuffix("."), wildcard=True):
        raise CommandFailure(f"{host!r} is not a host name or address")
    return x509.DNSName(host)
