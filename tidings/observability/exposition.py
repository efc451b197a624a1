"""Metrics as Prometheus text and health over HTTP, for few and short connections."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

import msgspec
import prometheus_client

from tidings.config.env import SettingsError, is_loopback
from tidings.net import own_certificate, socket_server, tls
from tidings.net.rate_limited_server import RateLimitedServer
from tidings.net.tls import NO_FILES, TlsFiles
from tidings.secrets.api_key import NO_KEY, ApiKey

log = logging.getLogger(__name__)

# Concurrent connections; one more is closed at once.
CONNECTIONS = 32
# Connections accepted per second, and burst; the others wait in the kernel's backlog. One takes about 0.3 ms.
RATE, BURST = 30.0, 100.0
# Bytes of a request head, and seconds from the connection to the end of the response.
MAX_HEAD = 8 * 1024
SECONDS = 5.0
LIVE, READY = b"/health/live", b"/health/ready"
OK = "ok"
# Seconds for which a generated text is served again: generating one takes some milliseconds.
FRESH = 0.5


# `ok`, or the error, of each dependency of the process.
Checks = Callable[[], Awaitable[Mapping[str, str]]]


async def _nothing() -> Mapping[str, str]:
    return {}


class Exposition:
    """Answers every GET with the metrics, except for the two health paths, and closes the connection."""

    def __init__(self, key: ApiKey | None, ready: Checks) -> None:
        """key: needed for the metrics; `None` when everybody may read them.
        ready(): the readiness checks.
        """
        self._key = key
        self._ready = ready
        self._server: RateLimitedServer | None = None
        # `None` for plaintext.
        self.tls: ssl.SSLContext | None = None
        self._open = 0
        self._text = b""
        self._made_at = float("-inf")

    @classmethod
    async def start(
        cls,
        host: str,
        port: int,
        *,
        key: ApiKey = NO_KEY,
        ready: Checks = _nothing,
        files: TlsFiles = NO_FILES,
        plaintext: bool = False,
        variable: str = "TIDINGS_COREAPP_METRICS_ADDRESS",
    ) -> Self:
        """Serve on an address: with TLS where other machines reach it, unless `plaintext` is set.

        Raises `SettingsError` when the address is not available or the certificate cannot be used.

        key: without it, other machines see no metrics.
        files: certificate; without one, a self-signed certificate is generated.
        variable: setting that holds the address, for errors.
        """
        is_local = is_loopback(host)
        made = cls(None if is_local else key, ready)
        if not is_local and not plaintext:
            made.tls = tls.server("metrics", files) if files.chain else own_certificate.make_context(host)
        try:
            listening = socket_server.listen(host, port)
        except OSError as error:
            raise SettingsError(f"{variable} {host}:{port}: {error.strerror or error}") from error
        made._server = RateLimitedServer(
            listening, made._protocol, rate=RATE, burst=BURST, context=made.tls, handshake_seconds=SECONDS
        )
        made._server.start()
        return made

    @property
    def port(self) -> int:
        """Port that it listens on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening; requests in progress end within `SECONDS`."""
        if self._server is not None:
            self._server.close()

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=MAX_HEAD), self._serve)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= CONNECTIONS:
            writer.transport.abort()
            return
        self._open += 1
        try:
            async with asyncio.timeout(SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._open -= 1

    async def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        if method not in (b"GET", b"HEAD"):
            return (
                b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        path = rest.partition(b" ")[0].partition(b"?")[0]
        status, kind = b"200 OK", b"application/json"
        if path == LIVE:
            text = msgspec.json.encode({"status": "live"})
        elif path == READY:
            found = await self._ready()
            ready = set(found.values()) <= {OK}
            status = b"200 OK" if ready else b"503 Service Unavailable"
            text = msgspec.json.encode({"status": "ready" if ready else "not ready", **found})
        elif self._key is not None and not self._key.is_given(_authorization(head)):
            return b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        else:
            text, kind = self._latest(), prometheus_client.CONTENT_TYPE_LATEST.encode()
        answer = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (
            status,
            kind,
            len(text),
        )
        return answer if method == b"HEAD" else answer + text

    def _latest(self) -> bytes:
        now = time.monotonic()
        if now - self._made_at > FRESH:
            self._text, self._made_at = prometheus_client.generate_latest(), now
        return self._text


def _authorization(head: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"authorization":
            return value.strip()
    return b""
