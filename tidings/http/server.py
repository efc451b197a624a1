"""HTTP server on listening sockets whose connections pass through admission."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Callable, Iterable

from tidings.http.acceptor import AdmittedProtocol, HttpAcceptor
from tidings.http.connection_limiter import ConnectionLimiter
from tidings.http.http_connections import HttpConnections
from tidings.http.listener_settings import UnauthenticatedSettings
from tidings.net.tls_server import Handshakes

# Descriptors that a process needs for everything other than these connections.
_OWN_DESCRIPTORS = 256
# Connections in the kernel's backlog. In a flood, 2,000 a second are accepted and refused, so a client behind a full
# backlog waits three quarters of a second.
BACKLOG = 1536


def affordable(connections: int, limits: UnauthenticatedSettings) -> int:
    """Return the number of connections that the process has descriptors for, at most `connections`.

    Descriptors of waiting connections are set aside. Raises the process's soft limit as far as needed and possible.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    own = _OWN_DESCRIPTORS + limits.waiting + limits.waiting_known
    wanted = connections + own
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else min(connections, max(soft // 2, soft - own))


class LimitedServer:
    """Server on sockets that are bound. At the stop, requests in progress finish within `grace` seconds."""

    def __init__(
        self,
        make: Callable[[HttpConnections], AdmittedProtocol],
        limiter: ConnectionLimiter,
        *,
        grace: float,
        handshakes: Handshakes | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """make(connections): returns the protocol of a new connection, which adds itself to `connections`.
        grace: seconds.
        handshakes: limits TLS handshakes.
        tls: context of the connections; `None` for plaintext.
        """
        self.connections = HttpConnections()
        self.tls = tls
        self._make = make
        self._limiter = limiter
        self._grace = grace
        self._handshakes = handshakes
        self._acceptors: list[HttpAcceptor] = []

    async def run(
        self, sockets: Iterable[socket.socket], stop: asyncio.Event, started: Callable[[], None] = lambda: None
    ) -> None:
        """Serve until `stop`.

        sockets: bound sockets, which are closed at the stop.
        started(): called once connections are accepted.
        """
        for listening in sockets:
            listening.listen(BACKLOG)
            acceptor = HttpAcceptor(
                listening, self._make_protocol, self._limiter, context=self.tls, handshakes=self._handshakes
            )
            acceptor.start()
            self._acceptors.append(acceptor)
        try:
            started()
            await stop.wait()
        finally:
            self.stop_listening()
            await self.connections.drain(self._grace)
            for acceptor in self._acceptors:
                await acceptor.wait_closed()

    def stop_listening(self) -> None:
        """Accept no more connections; open connections stay open."""
        for acceptor in self._acceptors:
            acceptor.close()

    def _make_protocol(self) -> AdmittedProtocol:
        return self._make(self.connections)
