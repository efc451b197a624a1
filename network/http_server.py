"""HTTP server for an ASGI application, on the event loop of this process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from prometheus_client import Counter, Gauge
from starlette.types import ASGIApp

from network.connections.websocket import MAX_MESSAGE, CuttableProtocol
from network.errors import CannotListen
from network.settings import Certificate
from tidings.runtime import http1

OPEN = Gauge("tidings_network_http_connections", "Open connections over HTTP that are no WebSockets")
REFUSED = Counter("tidings_network_http_refused_total", "Connections closed at once because too many were open")

BACKLOG = 2048
# Seconds that requests in progress have when the process stops.
GRACE = 3


class _Protocol(http1.StayingProtocol):
    """Connections, at most `limit` at a time; one more is closed at once. A WebSocket no longer counts."""

    def __init__(self, present: set[_Protocol], limit: int, **options: Any) -> None:
        super().__init__(**options)
        self._present = present
        self._limit = limit

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self._present) >= self._limit:
            REFUSED.inc()
            transport.abort()
            return
        self._present.add(self)
        OPEN.set(len(self._present))

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self._leave()
        super().handle_websocket_upgrade()

    def _leave(self) -> None:
        self._present.discard(self)
        OPEN.set(len(self._present))


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals belong to whoever started the process.
        yield


class HttpServer:
    """Service: listens from `open` on."""

    name = "http"

    def __init__(
        self,
        address: tuple[str, int],
        certificate: Certificate,
        app: ASGIApp,
        *,
        connections: int,
        head_timeout: float = http1.HEAD_TIMEOUT,
    ) -> None:
        """connections: open at the same time, WebSockets apart; one more is closed at once."""
        self._address = address
        self._socket: socket.socket | None = None
        self._server = _Server(
            uvicorn.Config(
                app,
                http=functools.partial(_Protocol, set(), connections, head_timeout=head_timeout),  # type: ignore[arg-type]
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                ws=CuttableProtocol,
                ws_max_size=MAX_MESSAGE,
                # Ciphertext does not get smaller.
                ws_per_message_deflate=False,
                ssl_certfile=certificate.chain or None,
                ssl_keyfile=certificate.key or None,
                timeout_graceful_shutdown=GRACE,
            )
        )

    def open(self) -> tuple[str, int]:
        """Bind; returns the address with the port that was bound. Raises `CannotListen`."""
        host, port = self._address
        try:
            # Reads the certificate, too; left to itself the server would end the whole process when it cannot.
            self._server.config.load()
        except OSError as error:
            raise CannotListen(f"TIDINGS_NETWORK_HTTP_CERTIFICATE: {error.strerror or error}") from error
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise CannotListen(f"TIDINGS_NETWORK_HTTP_ADDRESS {host}:{port}: {error.strerror or error}") from error
        self._socket.setblocking(False)
        bound: tuple[str, int] = self._socket.getsockname()[:2]
        return bound

    async def run(self, stop: asyncio.Event) -> None:
        assert self._socket is not None
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="http.serve")
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            self._server.should_exit = True
            await serving
        finally:
            stopping.cancel()

    def close(self) -> None:
        """Release the address if `run` was never called."""
        if self._socket is not None:
            self._socket.close()
