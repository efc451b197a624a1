"""HTTP server of the application, on a socket that was opened before any part was started."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
import ssl
import struct
from collections.abc import Callable, Sequence

from starlette.types import ASGIApp

from tidings.config.env import SettingsError
from tidings.http.acceptor import BACKLOG, HttpAcceptor
from tidings.http.connection_limiter import ConnectionLimiter
from tidings.http.hosts import ANY, Hosts
from tidings.http.limited_protocol import MISDIRECTED, LimitedConfig, LimitedHttpProtocol
from tidings.http.protocol import Headers, HttpLimits
from tidings.http.server import AsgiServer
from tidings.net.tls_server import Handshakes
from tidings.wire.codes import INVALID_REQUEST
from webapp.http.envelope import Dialect
from webapp.http.errors import APIError, InvalidRequest, Overloaded, RateLimitExceeded, WrongHost
from webapp.http.responses import error_response

# Seconds for which an idle connection is kept open.
KEEP_ALIVE = 75
# Seconds that requests in progress get at the stop.
GRACE = 8

# Layout of `struct tcp_info`: eight bytes and four words precede the field.
_UNACKED = struct.Struct("=24xI")


def listen(host: str, port: int) -> socket.socket:
    """Open the socket of the API. Raises `SettingsError` when the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio disables Nagle's algorithm only if it is.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise SettingsError(f"TIDINGS_API_ADDRESS {host}:{port}: {error.strerror or error}") from error
    return listener


@dataclasses.dataclass(frozen=True, slots=True)
class ServerLoad:
    """Load of the server."""

    connections: int  # open connections
    requests: int  # requests in progress
    pending: int  # connections that the system queues until they are accepted


def _pending(listener: socket.socket) -> int:
    """Return the length of a listening socket's queue; 0 where the system does not report it.

    According to tcp(7), `tcpi_unacked` of a listening socket contains it.
    """
    if not hasattr(socket, "TCP_INFO"):
        return 0
    info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _UNACKED.size)
    return int(_UNACKED.unpack(info)[0])


class _Protocol(LimitedHttpProtocol):
    """HTTP connection whose refusals have the API's format and a request id."""

    # API with its own format of errors; `None` when only v1 is served.
    dialect: Dialect | None = None

    def refusal(self, status: int, text: str) -> tuple[Headers, bytes]:
        error: APIError
        if status == 429:
            error = RateLimitExceeded(text, retry_after=1)
        elif status == 503:
            error = Overloaded(text)
        elif status == MISDIRECTED:
            error = WrongHost(text)
        else:
            error = InvalidRequest.because(INVALID_REQUEST, text)
        named = (b"x-request-id", os.urandom(16).hex().encode())
        scope = self.exchange.scope if self.exchange is not None else None
        if self.dialect is not None and scope is not None and self.dialect.claims(scope["path"]):
            response = self.dialect.respond_with_error(error, scope)
            return [*response.raw_headers, named], bytes(response.body)
        response = error_response(error)
        return [*response.raw_headers, (b"cache-control", b"no-cache, private"), named], bytes(response.body)


def _protocol(dialect: Dialect | None) -> type[_Protocol]:
    """Return the protocol class whose refusals have the format of the requested API."""

    class DialectProtocol(_Protocol):
        pass

    DialectProtocol.dialect = dialect
    return DialectProtocol


class HTTPServer:
    """Service that serves HTTP.

    At the stop it accepts no more requests and waits up to `GRACE` seconds for running ones.
    """

    name = "http"

    def __init__(
        self,
        app: ASGIApp,
        sockets: Sequence[socket.socket],
        started: Callable[[], None],
        *,
        limiter: ConnectionLimiter,
        hosts: Hosts = ANY,
        tls: ssl.SSLContext | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        """Create the server.

        sockets: listening sockets
        started: called once requests are accepted
        hosts: names by which clients may address the server
        tls: context with the certificate for HTTPS; None for plain HTTP
        dialect: API with its own format of errors; None for none
        """
        self._sockets = list(sockets)
        self._started = started
        handshakes = Handshakes("api")
        self._server = AsgiServer(
            LimitedConfig(app, _protocol(dialect), HttpLimits(keep_alive=KEEP_ALIVE), limiter=limiter, hosts=hosts),
            lambda listening, make: HttpAcceptor(listening, make, limiter, context=tls, handshakes=handshakes),
            grace=GRACE,
        )

    def load(self) -> ServerLoad:
        """Return the current load."""
        state = self._server.server_state
        return ServerLoad(len(state.connections), len(state.tasks), sum(map(_pending, self._sockets)))

    async def run(self, stop: asyncio.Event) -> None:
        await self._server.serve_until(stop, self._sockets, self._started)
