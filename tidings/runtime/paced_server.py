"""Connections taken from a listening socket at a pace: whoever comes faster waits with the system."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from tidings.runtime.clock import SystemClock
from tidings.runtime.socket_server import SocketServer
from tidings.runtime.token_buckets import TokenBuckets


class PacedServer(SocketServer):
    """Server for listeners that few connect to and everybody on the machine can reach: a flood of connections costs no
    more than the pace."""

    def __init__(
        self, listening: socket.socket, make: Callable[[], asyncio.BaseProtocol], *, rate: float, burst: float
    ) -> None:
        """make(): the protocol of a connection; rate: connections a second, and burst: at once."""
        super().__init__(listening)
        self._make = make
        self._tokens = TokenBuckets[str](SystemClock(), rate=rate, burst=burst, remembered=1)

    def taken(self, connection: socket.socket, host: str) -> None:
        self.begin(self._serve(connection))
        self._tokens.add("")
        wait = self._tokens.wait("")
        if wait:
            self.rest(wait)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(self._make, connection)
        except (OSError, asyncio.CancelledError):
            # The peer has gone.
            connection.close()
