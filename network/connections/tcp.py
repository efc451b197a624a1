"""Listener for length-prefixed frames over TCP or TLS, which fleets and Coreapps use."""

from __future__ import annotations

import asyncio
import functools
import socket

from network.connections.acceptor import DeviceAcceptor
from network.connections.connection_slots import HANDSHAKE, ConnectionSlot
from network.connections.connections import Connections
from network.connections.session_handler import SessionHandler
from network.errors import CannotListen
from tidings.net import tls
from tidings.net.tls import FileContext, TlsFiles
from tidings.net.tls_server import Handshakes
from tidings.net.unauthenticated import key_of
from tidings.wire import device
from tidings.wire.connection import Connection, framed
from tidings.wire.small_reads import SmallReads

# Connections that the system queues until they are accepted.
BACKLOG = 2048


def _bad_frame(detail: str) -> device.Closing:
    return device.Closing(reason=device.BAD_FRAME, detail=detail)


class TcpListener:
    """Service that listens from `open` on. When it stops, it stops listening; its connections stay open."""

    name = "tcp"

    def __init__(
        self,
        address: tuple[str, int],
        certificate: TlsFiles,
        connections: Connections,
        *,
        write_buffer: int,
        reuse_port: bool = False,
    ) -> None:
        """certificate: certificate and key; without them the listener does not use TLS.
        write_buffer: bytes queued for one reader at which it is disconnected.
        reuse_port: share the address with other processes.
        """
        self._reuse_port = reuse_port
        self._address = address
        self._certificate = certificate
        self._connections = connections
        self._write_buffer = write_buffer
        self._handshakes = Handshakes("tcp")
        self._acceptor: DeviceAcceptor | None = None
        self.tls: FileContext | None = None

    async def open(self) -> tuple[str, int]:
        """Listen; return the address with the port that was bound. Raises `CannotListen`."""
        host, port = self._address
        self.tls = make_tls(self._certificate)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=self._reuse_port)
        except OSError as error:
            raise CannotListen(f"TIDINGS_NETWORK_TCP_ADDRESS {host}:{port}: {error.strerror or error}") from error
        bound: tuple[str, int] = listening.getsockname()[:2]
        tokens, last_word = 1.0, framed(device.Closing(reason=device.OVERLOADED))
        if self.tls is not None:
            # No frame can be sent before the handshake.
            tokens, last_word = HANDSHAKE, b""
        self._acceptor = DeviceAcceptor(
            listening, functools.partial(self._connections.enter, tokens=tokens), self._serve, last_word=last_word
        )
        self._acceptor.start()
        return bound

    async def _serve(self, accepted: socket.socket, slot: ConnectionSlot) -> None:
        def make() -> SmallReads:
            # Small reads until the first login.
            return SmallReads(
                Connection(
                    device.FromDevice,
                    SessionHandler(self._connections, slot),
                    max_write_buffer=self._write_buffer,
                    last_words=_bad_frame,
                    unfinished=self._connections.unfinished,
                )
            )

        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is None:
                await asyncio.get_running_loop().connect_accepted_socket(make, accepted)
            else:
                key = key_of(slot.host)
                if not self._handshakes.enter(key):
                    raise ConnectionRefusedError("too many handshakes are under way")
                await self._handshakes.shake(make, accepted, self.tls, key)
        except (OSError, asyncio.CancelledError):
            # The peer disconnected, does not use TLS, or took too long for the handshake.
            accepted.close()
            slot.left()

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.close()

    def close(self) -> None:
        """Stop listening."""
        if self._acceptor is not None:
            self._acceptor.close()


def make_tls(certificate: TlsFiles) -> FileContext | None:
    """Return the server's TLS context, `None` without a certificate. Raises `CannotListen` when it cannot be used."""
    try:
        # Clients need no certificate: each device's token authenticates it.
        return tls.server("network_tcp", certificate) if certificate.chain else None
    except tls.UnusableCertificate as error:
        raise CannotListen(f"TIDINGS_NETWORK_TCP_CERTIFICATE: {error}") from error
