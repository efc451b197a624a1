"""HTTP server for an ASGI application, on the event loop of this process."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import socket

from prometheus_client import Counter, Gauge
from starlette.types import ASGIApp, Scope

from network import errors, http
from network.connections import websocket_handshake
from network.connections.websocket_handshake import InvalidHandshake, WebSocketHandshake
from network.errors import CannotListen
from tidings.http.acceptor import BACKLOG, HttpAcceptor
from tidings.http.connection_limiter import REQUEST, ConnectionLimiter
from tidings.http.exchange import HttpExchange
from tidings.http.hosts import ANY, Hosts
from tidings.http.limited_protocol import MISDIRECTED, LimitedConfig, LimitedHttpProtocol
from tidings.http.protocol import HEAD_TIMEOUT, Headers, HttpLimits
from tidings.http.server import AsgiServer
from tidings.net import tls
from tidings.net.tls import Clients, FileContext, TlsFiles
from tidings.net.tls_server import Handshakes

OPEN = Gauge("tidings_network_http_connections", "Open HTTP connections, without WebSockets")
REFUSED = Counter("tidings_network_http_refused_total", "Connections closed at once because too many were open")

# Seconds that requests in progress have to finish when the process stops.
GRACE = 3


class _Protocol(LimitedHttpProtocol):
    """HTTP connection that sends refusals in the format of the device API.

    A connection that was upgraded to a WebSocket no longer counts as one of these.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Present only if the listener verified it.
        certificate = transport.get_extra_info("peercert")
        self._certified = str(certificate["subject"]) if certificate else None
        OPEN.set(len(self.limiter))

    def released(self) -> None:
        super().released()
        OPEN.set(len(self.limiter))

    def begin(self, exchange: HttpExchange) -> None:
        # Format of the ASGI TLS extension.
        exchange.scope["extensions"] = {"tls": {"client_cert_name": self._certified}}
        super().begin(exchange)

    def accepts_upgrade(self, scope: Scope) -> bool:
        return websocket_handshake.is_websocket_upgrade(scope)

    def upgrade(self, scope: Scope, early: bytes) -> None:
        self.consume(REQUEST)
        if self.hosts:
            if error := self.host_error(scope, self.target):
                self.refuse(MISDIRECTED, error)
                return
            if error := self.hosts.origin_error(self.headers, is_local=self.is_local):
                self.refuse(403, error)
                return
        if self.served is not None:
            self.refuse(400, "a WebSocket handshake must not be sent before the response to the request before it")
            return
        try:
            on_login = functools.partial(self.limiter.mark_authenticated, self.admitted)
            handshake = WebSocketHandshake(self.transport, scope, self.server_state, on_login=on_login)
        except InvalidHandshake as error:
            self.refuse(400, str(error))
            return
        app = self.app
        self.hand_over(handshake)
        handshake.start(app, early)

    def refusal(self, status: int, text: str) -> tuple[Headers, bytes]:
        kinds = {
            429: errors.TooManyUnauthenticated,
            503: errors.Unavailable,
            421: errors.WrongHost,
            403: errors.WrongOrigin,
        }
        response = http.error_response(
            kinds.get(status, errors.BadRequest)(text, retry_after=int(status in (429, 503)))
        )
        return response.raw_headers, bytes(response.body)


@dataclasses.dataclass(eq=False, repr=False)
class HttpServer:
    """Service that serves an ASGI application. It listens from `open` on."""

    name = "http"

    address: tuple[str, int]
    # Files of the certificate, empty for no TLS. With authorities, client certificates are verified.
    certificate: TlsFiles
    app: ASGIApp
    _: dataclasses.KW_ONLY
    limiter: ConnectionLimiter
    hosts: Hosts = ANY  # names by which clients may address the server
    own_port: int = 0  # second port, of this process alone; 0 for none
    reuse_port: bool = False  # share the port in `address` with other processes
    head_timeout: float = HEAD_TIMEOUT

    def __post_init__(self) -> None:
        self.limiter.on_refusal.append(REFUSED.inc)
        self.tls: FileContext | None = None
        self._sockets: list[socket.socket] = []
        handshakes = Handshakes("http")
        limits = HttpLimits(head_timeout=self.head_timeout)
        self._server = AsgiServer(
            LimitedConfig(self.app, _Protocol, limits, limiter=self.limiter, hosts=self.hosts),
            lambda listening, make: HttpAcceptor(
                listening, make, self.limiter, context=self.tls, handshakes=handshakes
            ),
            grace=GRACE,
        )

    def open(self) -> tuple[str, int]:
        """Bind; return the address with the port that was bound. Raises `CannotListen`."""
        host, port = self.address
        self.tls = make_tls(self.certificate)
        self._listen(host, port, reuse_port=self.reuse_port)
        if self.own_port:
            self._listen(host, self.own_port)
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
        await self._server.serve_until(stop, self._sockets)

    def stop_listening(self) -> None:
        """Accept no more connections; open connections stay open."""
        self._server.stop_listening()

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
