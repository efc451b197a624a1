"""uvicorn's server with our protocol class, acceptors, stop and drain."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import resource
import socket
from collections.abc import Callable, Generator, Iterable
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from tidings.http.listener_settings import UnauthenticatedSettings
from tidings.http.protocol import HttpLimits, HttpProtocol
from tidings.http.refused_connections import IN_PROGRESS, QUEUED
from tidings.net.socket_server import SocketServer

log = logging.getLogger(__name__)

# Descriptors that a process needs for everything other than these connections.
_OWN_DESCRIPTORS = 256
# Seconds that cancelled requests have to end.
_CANCELLED = 1.0
# Seconds between checks whether all connections are closed when no request is in progress.
_CLOSING = 0.02


def affordable(connections: int, limits: UnauthenticatedSettings) -> int:
    """Return the number of connections that the process has descriptors for, at most `connections`.

    Descriptors of connections that wait or are refused are set aside. Raises the process's soft limit as far as needed
    and possible.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    own = _OWN_DESCRIPTORS + limits.waiting + limits.waiting_known + QUEUED + IN_PROGRESS
    wanted = connections + own
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else min(connections, max(soft // 2, soft - own))


class BoundedHttpProtocol(HttpProtocol):
    """HTTP connection that is closed at once when `most` others of the server are open."""

    most: int

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        is_full = len(self.server_state.connections) >= self.most
        super().connection_made(transport)
        if is_full:
            transport.abort()


class AsgiConfig(uvicorn.Config):
    """Configuration of a server whose connections are of the class `protocol`."""

    def __init__(self, app: ASGIApp, protocol: type[HttpProtocol], limits: HttpLimits) -> None:
        """limits: of each connection."""
        super().__init__(
            app,
            http=protocol,
            ws="none",
            interface="asgi3",
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            log_level="warning",
            # Ignore WEB_CONCURRENCY.
            workers=1,
        )
        self.limits = limits
        self.load()


class AsgiServer(uvicorn.Server):
    """uvicorn's server on bound sockets, which it closes at the stop. It leaves the signals to the process."""

    def __init__(
        self,
        config: AsgiConfig,
        accept: Callable[[socket.socket, Callable[[], Any]], SocketServer] | None = None,
        *,
        grace: float,
    ) -> None:
        """accept(listening, make): returns the acceptor of a socket, whose connections get the protocol that `make`
        returns; `None` for the acceptors of the event loop.
        grace: seconds that requests in progress have to finish at the stop.
        """
        super().__init__(config)
        self.servers = []
        self._accept = accept
        self._grace = grace
        self._stop = asyncio.Event()
        self._on_start: Callable[[], None] = lambda: None

    async def serve_until(
        self, stop: asyncio.Event, sockets: Iterable[socket.socket], on_start: Callable[[], None] = lambda: None
    ) -> None:
        """Serve until `stop`. on_start(): called once connections are accepted."""
        self._stop, self._on_start = stop, on_start
        await self.serve(list(sockets))

    def stop_listening(self) -> None:
        """Accept no more connections; open connections stay open."""
        for server in self.servers:
            server.close()

    # Methods of uvicorn's server.

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._accept is None:
            await super().startup(sockets)
            return
        make = functools.partial(
            self.config.http_protocol_class,
            config=self.config,  # type: ignore[call-arg]
            server_state=self.server_state,
            app_state={},
            _loop=asyncio.get_running_loop(),
        )
        acceptors = [self._accept(listening, make) for listening in sockets or ()]
        for acceptor in acceptors:
            acceptor.start()
        # They have the interface of `asyncio.Server`.
        self.servers = acceptors  # type: ignore[assignment]
        self.started = True

    async def main_loop(self) -> None:
        try:
            self._on_start()
            await self._stop.wait()
        except BaseException:
            await self.shutdown()
            raise

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close connections after their requests in progress, at once if there are none.

        After `grace` seconds requests are cancelled and connections are aborted.
        """
        self.stop_listening()
        connections: set[Any] = self.server_state.connections
        tasks = self.server_state.tasks
        for connection in list(connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self._grace):
                # These are plain sets, which report no change.
                while tasks or connections:
                    await (asyncio.wait(tasks) if tasks else asyncio.sleep(_CLOSING))
        except TimeoutError:
            if tasks:
                log.warning("http.requests_cancelled", extra={"requests": len(tasks), "grace_s": self._grace})
                cancelled = list(tasks)
                for task in cancelled:
                    task.cancel()
                await asyncio.wait(cancelled, timeout=_CANCELLED)
            for connection in list(connections):
                connection.abort()
        for server in self.servers:
            await server.wait_closed()
