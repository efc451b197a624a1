"""Checks for certificates that expire soon."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import time
from collections.abc import Mapping, Sequence

from cryptography import x509

from cli.doctor import http_probe
from cli.doctor.findings import Finding, error, fine, warning
from tidings.net import tls
from tidings.net.tls import TlsFiles

DAY = 86_400.0
SECONDS = 5.0
REMEDY = "renew it: `tidings certificates` makes those of an installation's own authority"


class CertificateFilesCheck:
    """Check of the files of certificates, authorities and private keys."""

    name = "certificates"

    def __init__(self, files: Mapping[str, TlsFiles]) -> None:
        """files: files by their use, such as `link` or `database`."""
        self._files = files

    async def run(self) -> Sequence[Finding]:
        found = []
        for use, files in self._files.items():
            try:
                context = tls.server(use, files) if files.chain else tls.client(use, files)
            except tls.UnusableCertificate as failure:
                found.append(error(self.name, f"{use}: {failure}", "correct the file, or the variable that names it"))
                continue
            found += [evaluate_expiry(f"{kind} for {use}", end, time.time()) for kind, end in context.ends.items()]
        return found or [fine(self.name, "none is set")]


class ApiCertificateCheck:
    """Check of the API's certificate; passes if no API runs at the address."""

    name = "certificate of the API"

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def run(self) -> Sequence[Finding]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Only the expiry is checked: whether name and authority are right depends on the clients.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            async with asyncio.timeout(SECONDS):
                sock = await http_probe.dial(self._host, self._port)
                _, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname="localhost")
        except ssl.SSLError as failure:
            return [error(self.name, f"no handshake: {tls.describe(failure)}", "see the Webapp's log")]
        except TimeoutError:
            return [error(self.name, f"no handshake within {SECONDS:g} s", "see the Webapp's log")]
        except OSError:
            return [fine(self.name, f"no API runs at {self._host}:{self._port}")]
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        end = x509.load_der_x509_certificate(shown).not_valid_after_utc.timestamp()
        return [evaluate_expiry(self.name, end, time.time())]


def evaluate_expiry(check: str, end: float, now: float) -> Finding:
    """Return a finding about a certificate's expiry.

    check: name of the finding.
    end: expiry, Unix seconds.
    now: Unix seconds.
    """
    at = f"{datetime.datetime.fromtimestamp(end, datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    left = end - now
    if left <= 0:
        return error(check, f"expired at {at}", REMEDY)
    if left < tls.SOON:
        return warning(check, f"expires in {left / DAY:.1f} days, at {at}", REMEDY)
    return fine(check, f"valid for {left / DAY:,.0f} days")
