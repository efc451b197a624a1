"""TLS between the processes of an installation, and to its database, from files that may be renewed meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from prometheus_client import Gauge

from tidings.runtime import service
from tidings.runtime.clock import Clock
from tidings.runtime.env import SettingsError

log = logging.getLogger(__name__)

EXPIRY = Gauge(
    "tidings_certificate_expiry_timestamp_seconds",
    "When a certificate in use ends, Unix seconds; of several authorities, the first that does",
    ["use", "kind"],
)

# Of TLS 1.2: forward secrecy and authenticated encryption only, for keys on curves and RSA alike.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
# The same without curves, which servers with OpenSSL 1.0 may lack: MySQL before 8.0.16.
CIPHERS_WITHOUT_CURVES = "DHE+AESGCM"
# Seconds until a handshake is given up; that the other side's goodbye is waited for.
HANDSHAKE_SECONDS = 10.0
GOODBYE_SECONDS = 5.0
# Seconds between two looks at the files by `CertificateWatch`, and between two warnings of the same end.
INTERVAL = 60.0
REMINDER_SECONDS = 86_400.0
# Seconds before the end of a certificate from which on it is warned of.
SOON = 30 * 86_400.0

_Stamp = tuple[tuple[int, int, int], ...]


class UnusableCertificate(SettingsError):
    """A file of a certificate, its key or its authorities is not there or not right; `str()` names it."""


class Clients(enum.Enum):
    """Whether a server asks its clients for certificates."""

    NONE = ssl.CERT_NONE
    # One that is shown must be right.
    ASKED = ssl.CERT_OPTIONAL
    REQUIRED = ssl.CERT_REQUIRED


@dataclasses.dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files, empty for none.

    chain: a certificate and what it was issued by, key: its private key. authorities: that vouch for the other side.
    """

    chain: str = ""
    key: str = ""
    authorities: str = ""


NO_FILES = TlsFiles()


class FileContext(ssl.SSLContext):
    """A context that gives each new connection what the files hold at that moment.

    Files that cannot be used leave what they held before in force.
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, use: str, files: TlsFiles, make: Callable[[TlsFiles], ssl.SSLContext]) -> None:
        """use: what for, in metrics and the log. Raises `UnusableCertificate`."""
        self.use = use
        self._files = files
        self._make = make
        self._stamp = self._look()
        self._current = make(files)
        self.ends = self._read_ends()

    def refresh(self) -> None:
        """Look at the files, and read them again when they have changed."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        # Once for each change, also of one that cannot be used.
        self._stamp = stamp
        try:
            self._current = self._make(self._files)
            self.ends = self._read_ends()
        except UnusableCertificate as error:
            log.error("tls.not_reloaded", extra={"use": self.use, "error": str(error)})
            return
        log.info("tls.reloaded", extra={"use": self.use})

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """As every context's; event loops and HTTP clients begin each connection with it."""
        self.refresh()
        return self._current.wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """As every context's."""
        self.refresh()
        return self._current.wrap_socket(*arguments, **options)

    def _look(self) -> _Stamp:
        found = []
        for path in (self._files.chain, self._files.key, self._files.authorities):
            try:
                status = Path(path).stat() if path else None
            except OSError:
                status = None
            found.append((status.st_ino, status.st_size, status.st_mtime_ns) if status else (0, 0, 0))
        return tuple(found)

    def _read_ends(self) -> dict[str, float]:
        """When the certificate and the first of the authorities end, Unix seconds, by kind."""
        ends = {}
        for kind, path in (("certificate", self._files.chain), ("authority", self._files.authorities)):
            if path:
                found = [certificate.not_valid_after_utc.timestamp() for certificate in _read_certificates(path)]
                # Of a chain the certificate itself comes first; those behind it are replaced with it.
                ends[kind] = found[0] if kind == "certificate" else min(found)
                EXPIRY.labels(self.use, kind).set(ends[kind])
        return ends


def client(
    use: str,
    files: TlsFiles,
    *,
    least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
    named: bool = True,
    ciphers: str = CIPHERS,
) -> FileContext:
    """For connections to servers that are verified by these authorities or, with none, the system's.

    named: so are their names; otherwise any certificate of these authorities is right. ciphers: of TLS 1.2. Raises
    `UnusableCertificate`.
    """

    def make(files: TlsFiles) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = named
        _harden(context, least, ciphers)
        if files.authorities:
            _load_authorities(context, files)
        else:
            context.load_default_certs()
        if files.chain:
            _load_chain(context, files)
        return context

    return FileContext(use, files, make)


def server(
    use: str,
    files: TlsFiles,
    *,
    clients: Clients = Clients.NONE,
    least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
) -> FileContext:
    """For a listener. Raises `UnusableCertificate`."""

    def make(files: TlsFiles) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _harden(context, least)
        _load_chain(context, files)
        if clients is not Clients.NONE:
            _load_authorities(context, files)
        context.verify_mode = ssl.VerifyMode(clients.value)
        # A resumed session would be of a certificate that nobody looks at again.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        return context

    return FileContext(use, files, make)


def harden_server(context: ssl.SSLContext) -> None:
    """TLS 1.2 at least, with ciphers of today, and no second handshake on a connection."""
    _harden(context, ssl.TLSVersion.TLSv1_2)


class CertificateWatch:
    """Service: has renewed files noticed although nobody connects, and warns of certificates that end soon."""

    name = "certificates"

    def __init__(self, contexts: Sequence[ssl.SSLContext | None], clock: Clock) -> None:
        """contexts: of the process; those that are of no files are passed over."""
        self._contexts = [context for context in contexts if isinstance(context, FileContext)]
        self._clock = clock
        # When each end was warned of last.
        self._warned: dict[tuple[str, str], float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        self.run_once()
        while not await service.wait_for(stop, INTERVAL):
            self.run_once()

    def run_once(self) -> None:
        """Look at each."""
        now = self._clock.now()
        for context in self._contexts:
            context.refresh()
            for kind, end in context.ends.items():
                known = self._warned.get((context.use, kind))
                if end - now < SOON and (known is None or now - known >= REMINDER_SECONDS):
                    self._warned[context.use, kind] = now
                    ends = datetime.datetime.fromtimestamp(end, datetime.UTC)
                    log.warning(
                        "tls.certificate_ends",
                        extra={
                            "use": context.use,
                            "kind": kind,
                            "at": f"{ends:%Y-%m-%dT%H:%M:%SZ}",
                            "days": round((end - now) / 86_400, 1),
                        },
                    )


def _harden(context: ssl.SSLContext, least: ssl.TLSVersion, ciphers: str = CIPHERS) -> None:
    context.minimum_version = least
    context.set_ciphers(ciphers)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE


def _load_chain(context: ssl.SSLContext, files: TlsFiles) -> None:
    try:
        # With no password given, an encrypted key would be asked for on the terminal.
        context.load_cert_chain(files.chain, files.key, password="")
    except ssl.SSLError as error:
        raise UnusableCertificate(f"{files.chain} with the key {files.key} cannot be used: {_reason(error)}") from error
    except OSError as error:
        raise UnusableCertificate(f"{_missing(files.chain, files.key)}: {error.strerror or error}") from error


def _load_authorities(context: ssl.SSLContext, files: TlsFiles) -> None:
    try:
        context.load_verify_locations(files.authorities)
    except ssl.SSLError as error:
        raise UnusableCertificate(f"{files.authorities} holds no certificates: {_reason(error)}") from error
    except OSError as error:
        raise UnusableCertificate(f"{files.authorities}: {error.strerror or error}") from error
    # Whoever is named here need not be a root, and may say of itself what authorities said twenty years ago.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _read_certificates(path: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(Path(path).read_bytes())
    except OSError as error:
        raise UnusableCertificate(f"{path}: {error.strerror or error}") from error
    except ValueError:
        raise UnusableCertificate(f"{path} holds no certificates in PEM") from None


def _missing(*paths: str) -> str:
    return next((path for path in paths if not Path(path).exists()), paths[0])


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error) or "not PEM").replace("_", " ").lower()


def describe(error: ssl.SSLError) -> str:
    """Why a handshake failed, in a line. The number of such an error is none of the system's."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is refused: {error.verify_message}"
    return f"TLS: {_reason(error)}"
