"""Checks of the network as its clients reach it: HTTP, TCP, TLS, health and registration key."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from cli.doctor import certificates, clock, http_probe
from cli.doctor.findings import Finding, error, fine, warning
from tidings.client.errors import ClientError, NetworkUnavailable, Unauthorized
from tidings.client.http import NetworkApi
from tidings.net import tls

SECONDS = 10.0
REMEDY = "start it, or correct TIDINGS_NETWORK_HTTP_URL; check for a firewall in between"


class NetworkHttpCheck:
    """Check that the network's HTTP address responds and reports good health."""

    name = "network"

    def __init__(self, url: str, context: ssl.SSLContext | None) -> None:
        self._url = url
        self._context = context if url.startswith("https:") else None

    async def run(self) -> Sequence[Finding]:
        parts = urlsplit(self._url)
        host, port = parts.hostname or "", parts.port or (443 if self._context else 80)
        request = f"GET /health HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: tidings\r\nConnection: close\r\n\r\n"
        started = time.monotonic()
        try:
            async with asyncio.timeout(SECONDS):
                sock = await http_probe.dial(host, port)
                answer = await http_probe.send_request(
                    sock, request.encode("ascii"), host=host, tls=self._context, started=started
                )
        except ssl.SSLError as failure:
            remedy = "set TIDINGS_NETWORK_CA to the authority of its certificate, or give it one for this name"
            return [error(self.name, f"{self._url}: {tls.describe(failure)}", remedy)]
        except OSError as failure:  # TimeoutError is one
            why = f"no response within {SECONDS:g} s" if isinstance(failure, TimeoutError) else str(failure)
            return [error(self.name, f"{self._url}: {why}", REMEDY)]
        found = [self._evaluate(answer)]
        if answer.date is not None:
            found.append(clock.compare("clock of the network", answer.date, answer.at, exact=False))
        if answer.ends:
            found.append(certificates.evaluate_expiry("certificate of the network", answer.ends, answer.at))
        return found

    def _evaluate(self, answer: http_probe.ProbeResponse) -> Finding:
        text = f"{self._url} responds in {answer.answered * 1000:.0f} ms" + (f", {answer.tls}" if answer.tls else "")
        if answer.status == 200:
            return fine(self.name, f"{text}: healthy")
        if answer.status == 503:
            return error(self.name, f"{text}: its database is unavailable", "check the database of the network")
        remedy = "check the server there: TIDINGS_NETWORK_HTTP_URL must lead to a message network"
        return error(self.name, f"{text}: HTTP {answer.status} to GET /health", remedy)


class NetworkTcpCheck:
    """Check of the network's TCP address, to which Coreapps connect."""

    name = "network over TCP"

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        """context: TLS context; None for a connection without TLS."""
        self._host = host
        self._port = port
        self._context = context

    async def run(self) -> Sequence[Finding]:
        where = f"{self._host}:{self._port}"
        started = time.monotonic()
        try:
            async with asyncio.timeout(SECONDS):
                sock = await http_probe.dial(self._host, self._port)
                name = self._host if self._context is not None else None
                _, writer = await asyncio.open_connection(sock=sock, ssl=self._context, server_hostname=name)
                writer.transport.abort()
        except ssl.SSLError as failure:
            remedy = "see TIDINGS_NETWORK_TCP_TLS and TIDINGS_NETWORK_CA"
            return [error(self.name, f"{where}: {tls.describe(failure)}", remedy)]
        except OSError as failure:
            why = f"no connection within {SECONDS:g} s" if isinstance(failure, TimeoutError) else str(failure)
            return [error(self.name, f"{where}: {why}", "start it, or correct TIDINGS_NETWORK_TCP_ADDRESS")]
        return [fine(self.name, f"{where} accepts connections in {(time.monotonic() - started) * 1000:.0f} ms")]


class NetworkKeyCheck:
    """Check that the network accepts the registration key, by a request with an empty list of registrations."""

    name = "registration key"

    def __init__(self, url: str, key: str, context: ssl.SSLContext | None) -> None:
        self._url = url
        self._key = key
        self._context = context

    async def run(self) -> Sequence[Finding]:
        async with NetworkApi(self._url, tls=self._context) as network:
            try:
                await network.register_many([], self._key)
            except Unauthorized as refusal:
                remedy = "give network and Coreapp the same TIDINGS_REGISTRATION_KEY (and the Coreapp its certificate)"
                return [error(self.name, f"the network refuses it: {refusal}", remedy)]
            except NetworkUnavailable as failure:
                return [warning(self.name, f"not known: {failure}", REMEDY)]
            except ClientError:
                # Any other error concerns the empty list, so the key was accepted.
                pass
        return [fine(self.name, "the network accepts it")]
