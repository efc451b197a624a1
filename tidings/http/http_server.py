"""uvicorn's server on listening sockets whose connections pass through admission."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import Generator
from typing import Any

import uvicorn

from tidings.http.acceptor import AdmittedProtocol, HttpAcceptor
from tidings.http.connection_limiter import ConnectionLimiter
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


class LimitedServer(uvicorn.Server):
    """uvicorn's server without signal handlers. The protocol of its configuration is an `AdmittedProtocol`."""

    def __init__(
        self, config: uvicorn.Config, limiter: ConnectionLimiter, handshakes: Handshakes | None = None
    ) -> None:
        """handshakes: limits TLS handshakes, once `tls` is set."""
        super().__init__(config)
        self.tls: ssl.SSLContext | None = None
        self._limiter = limiter
        self._handshakes = handshakes

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on `sockets`, which are bound."""
        await super().startup([])
        servers: list[Any] = self.servers
        for listener in sockets or ():
            listener.listen(BACKLOG)
            server = HttpAcceptor(listener, self._make, self._limiter, context=self.tls, handshakes=self._handshakes)
            server.start()
            servers.append(server)

    def _make(self) -> AdmittedProtocol:
        protocol: Any = self.config.http_protocol_class
        made: AdmittedProtocol = protocol(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )
        return made
