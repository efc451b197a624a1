"""Listener for length-prefixed frames over TCP or TLS, which fleets and Coreapps use.

It bounds the cost of unauthenticated clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket

from network.connections.connections import Connections
from network.errors import CannotListen
from network.settings import Settings
from tidings.net import tls
from tidings.net.socket_server import SocketServer
from tidings.net.tls import FileContext, TlsFiles
from tidings.net.tls_server import Handshakes
from tidings.net.unauthenticated import UnauthenticatedConnection
from tidings.wire import device
from tidings.wire.connection import Connection, framed
from tidings.wire.small_reads import SmallReads

# Connections that the system queues until they are accepted.
BACKLOG = 2048
# At most 25 connections are refused per 0.05 s; the rest waits in the system's backlog for the next interval. A refusal
# costs about 40 µs of CPU.
REFUSALS, WINDOW = 25, 0.05
# Tokens that a TLS connection consumes, for its handshake.
HANDSHAKE = 5.0


def _bad_frame(detail: str) -> device.Closing:
    return device.Closing(reason=device.BAD_FRAME, detail=detail)


@dataclasses.dataclass(slots=True, eq=False)
class TcpListener:
    """Service that listens from `open` on. When it stops, it stops listening; its connections stay open."""

    name = "tcp"

    settings: Settings
    connections: Connections
    tls: FileContext | None = None
    _handshakes: Handshakes = dataclasses.field(default_factory=lambda: Handshakes("tcp"))
    _acceptor: _Acceptor | None = None

    async def open(self) -> tuple[str, int]:
        """Listen; return the address with the port that was bound. Raises `CannotListen`."""
        host, port = self.settings.tcp_address
        family, reuse = socket.AF_INET6 if ":" in host else socket.AF_INET, self.settings.reuse_port
        self.tls = make_tls(self.settings.tcp_certificate)
        try:
            listening = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=reuse)
        except OSError as error:
            raise CannotListen(f"TIDINGS_NETWORK_TCP_ADDRESS {host}:{port}: {error.strerror or error}") from error
        bound: tuple[str, int] = listening.getsockname()[:2]
        self._acceptor = _Acceptor(listening, self)
        self._acceptor.start()
        return bound

    def take_slot(self, host: str) -> UnauthenticatedConnection | None:
        """Return a slot for a connection from this address, `None` to refuse the connection."""
        return self.connections.take_slot(host, 1.0 if self.tls is None else HANDSHAKE)

    async def serve(self, accepted: socket.socket, slot: UnauthenticatedConnection) -> None:
        """Set up an accepted connection; afterwards it belongs to its protocol."""

        def make() -> SmallReads:
            # Small reads until the first login.
            return SmallReads(
                Connection(
                    device.FromDevice,
                    self.connections.session(slot),
                    max_write_buffer=self.settings.limits.write_buffer,
                    closing_frame=_bad_frame,
                    unfinished=self.connections.unfinished,
                )
            )

        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is None:
                await asyncio.get_running_loop().connect_accepted_socket(make, accepted)
            else:
                if not self._handshakes.try_take(slot.key):
                    raise ConnectionRefusedError("too many handshakes are in progress")
                await self._handshakes.perform(make, accepted, self.tls, slot.key)
        except (OSError, asyncio.CancelledError):
            # The peer disconnected, does not use TLS, or took too long for the handshake.
            accepted.close()
            slot.release()

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.close()

    def close(self) -> None:
        """Stop listening."""
        if self._acceptor is not None:
            self._acceptor.close()


class _Acceptor(SocketServer):
    """Connections of the listening socket: each gets a slot, or is refused at once."""

    def __init__(self, listening: socket.socket, listener: TcpListener) -> None:
        super().__init__(listening, refusals=REFUSALS, window=WINDOW)
        self._listener = listener
        # No frame can be sent before the handshake.
        is_plain = listener.tls is None
        self._overloaded_frame = framed(device.Closing(reason=device.OVERLOADED)) if is_plain else b""

    def taken(self, connection: socket.socket, host: str) -> None:
        slot = self._listener.take_slot(host)
        if slot is not None:
            slot.close = self.begin(self._listener.serve(connection, slot)).cancel
            return
        with connection, contextlib.suppress(OSError):
            if self._overloaded_frame:
                connection.send(self._overloaded_frame)
        self.refused()


def make_tls(certificate: TlsFiles) -> FileContext | None:
    """Return the server's TLS context, `None` without a certificate. Raises `CannotListen` when it cannot be used."""
    try:
        # Clients need no certificate: each device's token authenticates it.
        return tls.server("network_tcp", certificate) if certificate.chain else None
    except tls.UnusableCertificate as error:
        raise CannotListen(f"TIDINGS_NETWORK_TCP_CERTIFICATE: {error}") from error
