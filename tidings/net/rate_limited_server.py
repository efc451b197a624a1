"""Accept connections from a listening socket at a limited rate; the others wait in the kernel's backlog."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from tidings.aio.clock import SystemClock
from tidings.aio.token_buckets import TokenBuckets
from tidings.net import tls
from tidings.net.socket_server import SocketServer


class RateLimitedServer(SocketServer):
    """Server for listeners with few clients that everything on the machine can reach.

    A flood of connections costs no more than the rate allows.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        *,
        rate: float,
        burst: float,
        context: ssl.SSLContext | None = None,
        handshake_seconds: float = tls.HANDSHAKE_SECONDS,
    ) -> None:
        """make: returns the protocol of a connection.
        rate: connections per second.
        burst: connections at once.
        context: for TLS; `None` for plaintext.
        handshake_seconds: limit of a handshake.
        """
        super().__init__(listening)
        self._make = make
        self._context = context
        self._handshake_seconds = handshake_seconds
        self._tokens = TokenBuckets[str](SystemClock(), rate=rate, burst=burst, remembered=1)

    def taken(self, connection: socket.socket, host: str) -> None:
        self.begin(self._serve(connection))
        self._tokens.add("")
        wait = self._tokens.wait("")
        if wait:
            self.pause(wait)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is None:
                await self._loop.connect_accepted_socket(self._make, connection)
            else:
                await self._loop.connect_accepted_socket(
                    self._make,
                    connection,
                    ssl=self._context,
                    ssl_handshake_timeout=self._handshake_seconds,
                    ssl_shutdown_timeout=tls.CLOSE_SECONDS,
                )
        except (OSError, asyncio.CancelledError):
            # The peer has disconnected.
            connection.close()
