"""HTTP server for an ASGI application, on the event loop of this process."""

from __future__ import annotations

import asyncio
import functools
import socket
from typing import Any

import uvicorn
from prometheus_client import Counter, Gauge
from starlette.types import ASGIApp

from network import errors, http
from network.connections.websocket_protocol import UpgradeProtocol
from network.errors import CannotListen
from tidings.http import http1, http_server
from tidings.http.connection_limiter import REQUEST, ConnectionLimiter
from tidings.http.hosts import ANY, Hosts
from tidings.net import tls
from tidings.net.tls import Clients, FileContext, TlsFiles
from tidings.net.tls_server import Handshakes

OPEN = Gauge("tidings_network_http_connections", "Open connections over HTTP that are no WebSockets")
REFUSED = Counter("tidings_network_http_refused_total", "Connections closed at once because too many were open")

BACKLOG = 2048  # Connections that the system queues until they are accepted.
# Seconds that requests in progress have to finish when the process stops.
GRACE = 3


class _Protocol(http1.BoundedProtocol):
    """HTTP connection that sends refusals in the format of the device API.

    A connection that was upgraded to a WebSocket no longer counts as one of these.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Present only if the listener verified it.
        certificate = transport.get_extra_info("peercert")
        self._certified = str(certificate["subject"]) if certificate else None
        OPEN.set(len(self.limiter))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        OPEN.set(len(self.limiter))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # Format of the ASGI TLS extension.
        self.scope["extensions"] = {"tls": {"client_cert_name": self._certified}}

    def handle_websocket_upgrade(self) -> None:
        self.consume(REQUEST)
        if self.hosts:
            if error := self.host_error():
                self.refuse(http1.MISDIRECTED, error)
                return
            if error := self.hosts.origin_error(self.headers, is_local=self.is_local):
                self.refuse(403, error)
                return
        self.leave()
        OPEN.set(len(self.limiter))
        super().handle_websocket_upgrade()
        protocol: Any = self.transport.get_protocol()
        if isinstance(protocol, UpgradeProtocol):
            protocol.on_login = functools.partial(self.limiter.mark_authenticated, self._admitted)

    def refusal(self, status: int, text: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
        kinds = {429: errors.TooMany, 503: errors.TooMany, 421: errors.WrongHost, 403: errors.WrongOrigin}
        answer = http.answer(kinds.get(status, errors.BadRequest)(text, retry_after=int(status in (429, 503))))
        return answer.raw_headers, bytes(answer.body)


class HttpServer:
    """Service that serves an ASGI application. It listens from `open` on."""

    name = "http"

    def __init__(
        self,
        address: tuple[str, int],
        certificate: TlsFiles,
        app: ASGIApp,
        *,
        limiter: ConnectionLimiter,
        hosts: Hosts = ANY,
        own_port: int = 0,
        reuse_port: bool = False,
        head_timeout: float = http1.HEAD_TIMEOUT,
    ) -> None:
        """Create the server.

        certificate: files of the certificate, empty for no TLS. With authorities, client certificates are verified.
        hosts: names by which clients may address the server.
        own_port: second port, of this process alone; 0 for none.
        reuse_port: share the port in `address` with other processes.
        """
        self._own_port = own_port
        self._reuse_port = reuse_port
        limiter.on_refusal.append(REFUSED.inc)
        self._address = address
        self._certificate = certificate
        self.tls: FileContext | None = None
        self._sockets: list[socket.socket] = []
        self._server = http_server.LimitedServer(
            uvicorn.Config(
                app,
                http=functools.partial(_Protocol, limiter=limiter, hosts=hosts, head_timeout=head_timeout),  # type: ignore[arg-type]
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                ws=UpgradeProtocol,
                # An open WebSocket has its own pings and limits.
                ws_ping_interval=None,
                # Ciphertext does not compress.
                ws_per_message_deflate=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=GRACE,
            ),
            limiter,
            Handshakes("http"),
        )

    def open(self) -> tuple[str, int]:
        """Bind; return the address with the port that was bound. Raises `CannotListen`."""
        host, port = self._address
        self._server.tls = self.tls = make_tls(self._certificate)
        self._listen(host, port, reuse_port=self._reuse_port)
        if self._own_port:
            self._listen(host, self._own_port)
        bound: tuple[str, int] = self._sockets[0].getsockname()[:2]
        return bound

    def _listen(self, host: str, port: int, *, reuse_port: bool = False) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=reuse_port)
        except OSError as error:
            raise CannotListen(f"TIDINGS_NETWORK_HTTP_ADDRESS {host}:{port}: {error.strerror or error}") from error
        listening.setblocking(False)
        self._sockets.append(listening)

    async def run(self, stop: asyncio.Event) -> None:
        serving = asyncio.create_task(self._server.serve(sockets=self._sockets), name="http.serve")
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            self._server.should_exit = True
            await serving
        finally:
            stopping.cancel()

    def stop_listening(self) -> None:
        """Accept no more connections; open connections stay open."""
        for server in self._server.servers:
            server.close()

    def close(self) -> None:
        """Release the address if `run` was never called."""
        for listening in self._sockets:
            listening.close()


def make_tls(certificate: TlsFiles) -> FileContext | None:
    """Return the server's TLS context, `None` without a certificate. Raises `CannotListen` when it cannot be used."""
    clients = Clients.ASKED if certificate.authorities else Clients.NONE
    try:
        return tls.server("network_http", certificate, clients=clients) if certificate.chain else None
    except tls.UnusableCertificate as error:
        raise CannotListen(f"TIDINGS_NETWORK_HTTP_CERTIFICATE: {error}") from error
