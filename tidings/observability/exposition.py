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
from starlette.types import Receive, Scope, Send

from tidings.config.env import SettingsError, is_loopback
from tidings.http.protocol import HttpLimits
from tidings.http.server import AsgiConfig, AsgiServer, BoundedHttpProtocol
from tidings.net import own_certificate, socket_server, tls
from tidings.net.rate_limited_server import RateLimitedServer
from tidings.net.tls import NO_FILES, TlsFiles
from tidings.secrets.api_key import NO_KEY, ApiKey

log = logging.getLogger(__name__)

# Concurrent connections; one more is closed at once.
CONNECTIONS = 32
# Connections accepted per second, and burst; the others wait in the kernel's backlog. One takes about 0.3 ms.
RATE, BURST = 30.0, 100.0
# Bytes of a request head, and seconds that the head, the checks and reading the response may take each.
MAX_HEAD = 8 * 1024
SECONDS = 5.0
LIVE, READY = "/health/live", "/health/ready"
OK = "ok"
# Seconds for which a generated text is served again: generating one takes some milliseconds.
FRESH = 0.5

_JSON = b"application/json"
_METRICS = prometheus_client.CONTENT_TYPE_LATEST.encode()


# `ok`, or the error, of each dependency of the process.
Checks = Callable[[], Awaitable[Mapping[str, str]]]


async def _nothing() -> Mapping[str, str]:
    return {}


class _Protocol(BoundedHttpProtocol):
    most = CONNECTIONS


class Exposition:
    """ASGI application that answers every GET with the metrics, except for the two health paths.

    Each response ends its connection.
    """

    def __init__(self, key: ApiKey | None, ready: Checks) -> None:
        """key: needed for the metrics; `None` when everybody may read them.
        ready(): the readiness checks.
        """
        self._key = key
        self._ready = ready
        self._server: AsgiServer | None = None
        # `None` for plaintext.
        self.tls: ssl.SSLContext | None = None
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
        made._server = AsgiServer(
            AsgiConfig(made, _Protocol, HttpLimits(head_timeout=SECONDS, head_bytes=MAX_HEAD, stalled=SECONDS)),
            lambda listening, make: RateLimitedServer(
                listening, make, rate=RATE, burst=BURST, context=made.tls, handshake_seconds=SECONDS
            ),
            grace=SECONDS,
        )
        await made._server.startup([listening])
        return made

    @property
    def port(self) -> int:
        """Port that it listens on."""
        assert self._server is not None
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening; requests in progress end within `SECONDS`."""
        if self._server is not None:
            self._server.stop_listening()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, kind, text = await self._answer(scope)
        headers = [(b"content-length", b"%d" % len(text)), (b"connection", b"close")]
        if kind:
            headers.append((b"content-type", kind))
        if status == 405:
            headers.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    async def _answer(self, scope: Scope) -> tuple[int, bytes, bytes]:
        """Return status, content type and body of the response."""
        if scope["method"] not in ("GET", "HEAD"):
            return 405, b"", b""
        if scope["path"] == LIVE:
            return 200, _JSON, msgspec.json.encode({"status": "live"})
        if scope["path"] == READY:
            try:
                async with asyncio.timeout(SECONDS):
                    found = await self._ready()
            except TimeoutError:
                return 503, _JSON, msgspec.json.encode({"status": "not ready"})
            is_ready = set(found.values()) <= {OK}
            text = msgspec.json.encode({"status": "ready" if is_ready else "not ready", **found})
            return 200 if is_ready else 503, _JSON, text
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if self._key is not None and not self._key.is_given(given):
            return 401, b"", b""
        return 200, _METRICS, self._latest()

    def _latest(self) -> bytes:
        now = time.monotonic()
        if now - self._made_at > FRESH:
            self._text, self._made_at = prometheus_client.generate_latest(), now
        return self._text
