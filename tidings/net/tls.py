"""TLS between the processes of an installation, and to its database, from files that may be renewed at run time."""

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

from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.config.env import SettingsError

log = logging.getLogger(__name__)

EXPIRY = Gauge(
    "tidings_certificate_expiry_timestamp_seconds",
    "Expiry of a certificate in use, Unix seconds; of several CA certificates, the earliest",
    ["use", "kind"],
)

# For TLS 1.2: forward secrecy and authenticated encryption only, for keys on curves and RSA alike.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
# The same without elliptic curves, which servers with OpenSSL 1.0 may lack: MySQL before 8.0.16.
CIPHERS_WITHOUT_CURVES = "DHE+AESGCM"
# Seconds until a handshake is aborted, and seconds to wait for the peer's close_notify.
HANDSHAKE_SECONDS = 10.0
CLOSE_SECONDS = 5.0
# Seconds between two checks of the files by `CertificateWatch`, and between two warnings about the same expiry.
INTERVAL = 60.0
REMINDER_SECONDS = 86_400.0
# Seconds before the expiry of a certificate at which warnings start.
SOON = 30 * 86_400.0

_Stamp = tuple[tuple[int, ...], ...]


class UnusableCertificate(SettingsError):
    """The file of a certificate, its key or its authorities is missing or invalid; `str()` names it."""


class Clients(enum.Enum):
    """Client certificates that a server requests."""

    NONE = ssl.CERT_NONE
    # Optional, but must be valid if present.
    ASKED = ssl.CERT_OPTIONAL
    REQUIRED = ssl.CERT_REQUIRED


@dataclasses.dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files, empty for none."""

    # A certificate and the intermediate ones that issued it.
    chain: str = ""
    # Private key of the certificate.
    key: str = ""
    # Authorities that verify the peer.
    authorities: str = ""


NO_FILES = TlsFiles()


class FileContext(ssl.SSLContext):
    """SSL context that uses the present content of its files for each new connection.

    Files that cannot be used leave the previous content in force.
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(
        self, use: str, files: TlsFiles, make: Callable[[TlsFiles], ssl.SSLContext], *, server_name: str = ""
    ) -> None:
        """Load the files. Raises `UnusableCertificate`.

        use: purpose of the context, for metrics and the log.
        make: creates a context from the present content of the files.
        server_name: as for `client`.
        """
        self.use = use
        self._server_name = server_name
        self._files = files
        self._make = make
        self._stamp = self._read_stamp()
        self._current = make(files)
        self.ends = self._read_ends()
        self.names = _read_names(files.chain)

    @property
    def current(self) -> ssl.SSLContext:
        """Context with the present content of the files, for a handshake that another context started."""
        self.refresh()
        return self._current

    def refresh(self) -> None:
        """Read the files again if they have changed."""
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return
        # Recorded first, so that a change that cannot be used is also tried only once.
        self._stamp = stamp
        try:
            self._current = self._make(self._files)
            self.ends = self._read_ends()
            self.names = _read_names(self._files.chain)
        except UnusableCertificate as error:
            log.error("tls.not_reloaded", extra={"use": self.use, "error": str(error)})
            return
        log.info("tls.reloaded", extra={"use": self.use})

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Refresh, then call the current context; event loops and HTTP clients start each connection with it."""
        self.refresh()
        if self._server_name:
            options["server_hostname"] = self._server_name
        return self._current.wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """Refresh, then call the current context."""
        self.refresh()
        if self._server_name:
            options["server_hostname"] = self._server_name
        return self._current.wrap_socket(*arguments, **options)

    def _read_stamp(self) -> _Stamp:
        found = []
        for path in (self._files.chain, self._files.key, self._files.authorities):
            try:
                status = Path(path).stat() if path else None
            except OSError:
                status = None
            # The change time, because other rights make an unreadable file readable.
            found.append((status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns) if status else ())
        return tuple(found)

    def _read_ends(self) -> dict[str, float]:
        """Return the expiry of the certificate and the first expiry of the authorities, Unix seconds, by kind."""
        ends = {}
        for kind, path in (("certificate", self._files.chain), ("authority", self._files.authorities)):
            if path:
                found = [certificate.not_valid_after_utc.timestamp() for certificate in _read_certificates(path)]
                # A chain starts with the certificate itself; the others are replaced together with it.
                ends[kind] = found[0] if kind == "certificate" else min(found)
                EXPIRY.labels(self.use, kind).set(ends[kind])
        return ends


def client(
    use: str,
    files: TlsFiles,
    *,
    least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
    named: bool = True,
    server_name: str = "",
    ciphers: str = CIPHERS,
) -> FileContext:
    """Return a context for connections to servers that these authorities verify or, if none are set, the system's.

    Raises `UnusableCertificate`.

    use: purpose of the context, for metrics and the log.
    least: earliest version of TLS.
    named: verify the names in certificates too; otherwise any certificate of the authorities is accepted.
    server_name: name that certificates must have; empty for the host of each connection.
    ciphers: for TLS 1.2.
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

    return FileContext(use, files, make, server_name=server_name)


def server(
    use: str,
    files: TlsFiles,
    *,
    clients: Clients = Clients.NONE,
    least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
) -> FileContext:
    """Return a context for a listener. Raises `UnusableCertificate`."""

    def make(files: TlsFiles) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _harden(context, least)
        _load_chain(context, files)
        if clients is not Clients.NONE:
            _load_authorities(context, files)
        context.verify_mode = ssl.VerifyMode(clients.value)
        # A resumed session would use a client certificate that is not verified again.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        return context

    return FileContext(use, files, make)


def harden_server(context: ssl.SSLContext) -> None:
    """Require TLS 1.2 or later and modern ciphers, and disable renegotiation."""
    _harden(context, ssl.TLSVersion.TLSv1_2)


class CertificateWatch:
    """Service that reloads renewed files even without connections, and warns of certificates that expire soon."""

    name = "certificates"

    def __init__(self, contexts: Sequence[ssl.SSLContext | None], clock: Clock) -> None:
        """contexts: of the process; those without files are ignored."""
        self._contexts = [context for context in contexts if isinstance(context, FileContext)]
        self._clock = clock
        # Unix seconds of the last warning, by use and kind.
        self._warned: dict[tuple[str, str], float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        self.run_once()
        while not await service.wait_for(stop, INTERVAL):
            self.run_once()

    def run_once(self) -> None:
        """Check each certificate once."""
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
        # Without a password, OpenSSL would prompt for that of an encrypted key on the terminal.
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
    # An authority in this file need not be a root, and may violate RFC 5280's rules for its extensions, as old ones do.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _read_certificates(path: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(Path(path).read_bytes())
    except OSError as error:
        raise UnusableCertificate(f"{path}: {error.strerror or error}") from error
    except ValueError:
        raise UnusableCertificate(f"{path} holds no certificates in PEM") from None


def _read_names(chain: str) -> frozenset[str]:
    """Return the host names in the first certificate of a file, in lower case; none without a file."""
    if not chain:
        return frozenset()
    try:
        extension = _read_certificates(chain)[0].extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        # OpenSSL accepts certificates whose extensions this parser refuses.
        return frozenset()
    return frozenset(name.lower() for name in extension.value.get_values_for_type(x509.DNSName))


def _missing(*paths: str) -> str:
    return next((path for path in paths if not Path(path).exists()), paths[0])


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error) or "not PEM").replace("_", " ").lower()


def describe(error: ssl.SSLError) -> str:
    """Return the reason of a failed handshake in one line. The `errno` of such an error is not the system's."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is refused: {error.verify_message}"
    return f"TLS: {_reason(error)}"
