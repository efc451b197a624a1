"""Frames over plain TCP or TLS, each with its length before it: for fleets and Coreapps."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from network.connections.connections import Connections
from network.connections.session import Session
from network.errors import CannotListen
from network.settings import Certificate
from tidings.wire import device
from tidings.wire.connection import Connection, listen


class _Handler:
    """Ties one TCP connection to its session."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._session: Session | None = None

    def opened(self, connection: Connection) -> None:
        self._session = self._connections.open(connection)

    def received(self, connection: Connection, frame: Any) -> None:
        assert self._session is not None
        self._connections.received(self._session, frame)

    def closed(self, connection: Connection, reason: str) -> None:
        if self._session is not None:
            self._connections.closed(self._session, reason)


def _bad_frame(detail: str) -> device.Closing:
    return device.Closing(reason=device.BAD_FRAME, detail=detail)


class TcpListener:
    """Service: listens from `open` on and stops listening when it is stopped; its connections live on."""

    name = "tcp"

    def __init__(
        self, address: tuple[str, int], certificate: Certificate, connections: Connections, *, write_buffer: int
    ) -> None:
        self._address = address
        self._certificate = certificate
        self._connections = connections
        self._write_buffer = write_buffer
        self._server: asyncio.Server | None = None

    async def open(self) -> tuple[str, int]:
        """Listen; returns the address with the port that was bound. Raises `CannotListen`."""
        host, port = self._address
        tls = make_tls(self._certificate)
        try:
            self._server = await listen(
                host,
                port,
                device.FromDevice,
                lambda: _Handler(self._connections),
                tls=tls,
                max_write_buffer=self._write_buffer,
                last_words=_bad_frame,
            )
        except OSError as error:
            raise CannotListen(f"TIDINGS_NETWORK_TCP_ADDRESS {host}:{port}: {error.strerror or error}") from error
        bound: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return bound

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.close()

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()


def make_tls(certificate: Certificate) -> ssl.SSLContext | None:
    """The server's side of TLS, `None` when there is no certificate. Raises `CannotListen` when it cannot be used."""
    if not certificate.chain:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate.chain, certificate.key)
    except OSError as error:
        raise CannotListen(f"TIDINGS_NETWORK_TCP_CERTIFICATE {certificate.chain}: {error.strerror or error}") from error
    return context
