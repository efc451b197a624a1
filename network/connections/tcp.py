"""Frames over plain TCP or TLS, each with its length before it: for fleets and Coreapps."""

from __future__ import annotations

import asyncio
from typing import Any

from network.connections.connections import Connections
from network.connections.session import Session
from network.errors import CannotListen
from tidings.runtime import tls
from tidings.runtime.tls import FileContext, TlsFiles
from tidings.runtime.tls_server import Handshakes, TlsServer
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
        self, address: tuple[str, int], certificate: TlsFiles, connections: Connections, *, write_buffer: int
    ) -> None:
        """certificate: without one, there is no TLS."""
        self._address = address
        self._certificate = certificate
        self._connections = connections
        self._write_buffer = write_buffer
        self._server: asyncio.Server | TlsServer | None = None
        self.tls: FileContext | None = None

    async def open(self) -> tuple[str, int]:
        """Listen; returns the address with the port that was bound. Raises `CannotListen`."""
        host, port = self._address
        self.tls = make_tls(self._certificate)
        try:
            self._server = await listen(
                host,
                port,
                device.FromDevice,
                lambda: _Handler(self._connections),
                tls=self.tls,
                handshakes=Handshakes("tcp"),
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


def make_tls(certificate: TlsFiles) -> FileContext | None:
    """The server's side of TLS, `None` when there is no certificate. Raises `CannotListen` when it cannot be used."""
    try:
        # What guards here is each device's token.
        return tls.server("network_tcp", certificate) if certificate.chain else None
    except tls.UnusableCertificate as error:
        raise CannotListen(f"TIDINGS_NETWORK_TCP_CERTIFICATE: {error}") from error
