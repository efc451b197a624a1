"""TLS of the API's listener: the uploaded certificate, or a generated one until one is uploaded."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import logging
import ssl
import tempfile
from pathlib import Path

from tidings.aio.clock import Clock
from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret
from tidings.net import tls
from tidings.net.tls import FileContext
from tidings.storage.business import certificates
from tidings.storage.database import Connection, Database
from webapp.http.pem import CertificateBundle, UnusablePem

log = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False, repr=False)
class ServerTLS:
    """Keeps the listener's certificate equal to the one in the database. New connections use a new one at once."""

    database: Database
    account: str
    _: dataclasses.KW_ONLY
    safe: SecretSealer
    names: tuple[str, ...]  # host names and addresses that clients call, for the generated certificate
    clock: Clock
    # Certificate of this process, for callers inside the installation; `None` without one.
    own: FileContext | None = None

    def __post_init__(self) -> None:
        self._current: ssl.SSLContext | None = None
        self._pem = b""
        # Names in the certificate of the API, in lower case.
        self._names: frozenset[str] = frozenset()
        self._unusable: bytes | None = None
        self.context = _context()
        self.context.sni_callback = self._choose

    async def load(self) -> None:
        """Apply the certificate in the database. Generates one when there is none or none that can be used.

        Raises `UnreadableSecret` when it was sealed under another key, and the database's errors.
        """
        bundle = await self.bundle()
        if bundle.pem == self._pem:
            return
        fresh = await asyncio.to_thread(_load, bundle.pem)
        if not self._pem:
            # The context in which handshakes start must have a certificate, too.
            await asyncio.to_thread(_load, bundle.pem, self.context)
        self._current, self._pem = fresh, bundle.pem
        self._names = frozenset(name.lower() for name in bundle.names)
        tls.EXPIRY.labels("api", "certificate").set(bundle.ends.timestamp())
        log.info("tls.certificate", extra={"names": ",".join(bundle.names)})

    async def authorities(self) -> bytes:
        """Return the certificates that clients may trust, PEM."""
        return (await self.bundle()).authorities

    def _choose(self, socket: ssl.SSLSocket | ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        host = (name or "").lower()
        if self.own is not None and host in self.own.names and not self._covers(host):
            # The caller trusts the installation's authority, such as Prometheus.
            socket.context = self.own.current
        elif self._current is not None:
            socket.context = self._current

    def _covers(self, host: str) -> bool:
        """Return whether the certificate of the API is valid for a host, by its name or by a wildcard."""
        return host in self._names or f"*.{host.partition('.')[2]}" in self._names

    async def bundle(self) -> CertificateBundle:
        """Return the certificate in the database: the uploaded one if it can be used, or a generated one."""
        async with self.database.reading() as connection:
            uploaded = await certificates.find_certificate(connection, self.account, certificates.EXTERNAL)
            made = await certificates.find_certificate(connection, self.account, certificates.SELF_SIGNED)
        if uploaded is not None:
            bundle = await self._open_uploaded(uploaded)
            if bundle is not None:
                return bundle
        now = datetime.datetime.fromtimestamp(self.clock.now(), datetime.UTC)
        present = self._open_made(made)
        if present is not None and present.is_fresh(now) and set(self.names) <= set(present.names):
            return present
        # The names of other Webapps are kept, so that Webapps with different names agree on one certificate.
        others = present.names if present is not None else ()
        bundle = await asyncio.to_thread(CertificateBundle.make, list(dict.fromkeys((*self.names, *others))), now)
        sealed = self.safe.seal(self.account, certificates.SELF_SIGNED, bundle.pem)

        async def keep(connection: Connection) -> bytes | None:
            if present is None and made is None:
                # If several Webapps start at once, only one stores its certificate.
                await certificates.add_certificate_if_missing(
                    connection, self.account, certificates.SELF_SIGNED, sealed
                )
            else:
                await certificates.set_certificate(connection, self.account, certificates.SELF_SIGNED, sealed)
            return await certificates.find_certificate(connection, self.account, certificates.SELF_SIGNED)

        kept = self._open_made(await self.database.persist(keep, retry_seconds=20.0))
        return kept or bundle

    async def _open_uploaded(self, sealed: bytes) -> CertificateBundle | None:
        """Return the uploaded certificate; `None` when a server cannot use it. Raises `UnreadableSecret`."""
        if sealed == self._unusable:
            return None
        content = self.safe.open(self.account, certificates.EXTERNAL, sealed)
        try:
            bundle = CertificateBundle.load(content)
            if bundle.pem != self._pem:
                await asyncio.to_thread(check, bundle.pem)
        except (UnusablePem, ssl.SSLError) as error:
            # Logged once per certificate, although it is loaded every few seconds.
            self._unusable = sealed
            log.error("tls.unusable", extra={"error": str(error)[:200]})
            return None
        return bundle

    def _open_made(self, sealed: bytes | None) -> CertificateBundle | None:
        try:
            return (
                None
                if sealed is None
                else CertificateBundle.load(self.safe.open(self.account, certificates.SELF_SIGNED, sealed))
            )
        except (UnreadableSecret, UnusablePem):
            return None


def check(pem: bytes) -> None:
    """Raise `ssl.SSLError` when a server cannot use the certificate, for example because the key is too weak."""
    _load(pem)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.harden_server(context)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load(pem: bytes, context: ssl.SSLContext | None = None) -> ssl.SSLContext:
    context = context or _context()
    # The ssl module reads certificates only from files. Only the owner can access the directory.
    with tempfile.TemporaryDirectory(prefix="tidings-tls-") as directory:
        path = Path(directory) / "bundle.pem"
        path.touch(0o600)
        path.write_bytes(pem)
        context.load_cert_chain(path)
    return context
