"""Server whose application reports what it received, and connections to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from tidings.aio.clock import Clock, SystemClock
from tidings.http.acceptor import HttpAcceptor
from tidings.http.connection_limiter import ConnectionLimiter
from tidings.http.hosts import ANY, Hosts
from tidings.http.limited_protocol import ADMITTED, LimitedConfig, LimitedHttpProtocol
from tidings.http.listener_settings import UnauthenticatedSettings
from tidings.http.protocol import HttpLimits
from tidings.http.server import AsgiServer
from tidings.net.unauthenticated import Network

UNLIMITED = UnauthenticatedSettings(rate=0.0, rate_each=0.0)


class Server(AsgiServer):
    """Server whose application reads a request's body only if the path is `/read`, and responds with the result.

    A request with `Authorization: good` logs in. The connection limiter recognises `known` as logged in. Paths in
    `apps` are served by other applications.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        keep_alive: float = 60.0,
        connections: int = 1_000,
        limits: UnauthenticatedSettings = UNLIMITED,
        trusted: Sequence[Network] = (),
        clock: Clock | None = None,
        tls: ssl.SSLContext | None = None,
        hosts: Hosts = ANY,
        grace: float = 1.0,
        **options: Any,
    ) -> None:
        # Paths that are overloaded.
        self.crowded: set[str] = set()
        self.limiter = ConnectionLimiter(
            limits,
            clock or SystemClock(),
            connections=connections,
            trusted=trusted,
            recognise=lambda given: given == b"known",
            urgent=("/urgent",),
            is_overloaded=lambda path, delay: path in self.crowded,
        )
        limits_of_each = HttpLimits(keep_alive=keep_alive, **options)
        super().__init__(
            LimitedConfig(self._app, LimitedHttpProtocol, limits_of_each, limiter=self.limiter, hosts=hosts),
            lambda listening, make: HttpAcceptor(listening, make, self.limiter, context=tls),
            grace=grace,
        )
        self.port = listener.getsockname()[1]
        self.stop = asyncio.Event()
        self.served = 0
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        self.on_request: Callable[[], Any] = lambda: None
        self.on_path: Callable[[str], Any] = lambda path: None
        self.apps: dict[str, ASGIApp] = {}
        # Lists of headers of the requests. They are not copied, so later additions are visible.
        self.headers: list[list[tuple[bytes, bytes]]] = []

    def protocol(self) -> LimitedHttpProtocol:
        """Protocol of the only connection."""
        (protocol,) = self.server_state.connections
        assert isinstance(protocol, LimitedHttpProtocol)
        return protocol

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.served += 1
        self.on_request()
        self.on_path(scope["path"])
        self.headers.append(scope["headers"])
        if (b"authorization", b"good") in scope["headers"]:
            scope[ADMITTED].mark_authenticated()
        if scope["path"] in self.apps:
            await self.apps[scope["path"]](scope, receive, send)
            return
        body = b""
        while scope["path"] == "/read":
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            self.received.put_nowait(message["body"])
            if not message["more_body"]:
                break
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def serve(**options: Any) -> AsyncIterator[Server]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(listener, **options)
    started = asyncio.Event()
    serving = asyncio.create_task(server.serve_until(server.stop, [listener], started.set))
    await asyncio.wait_for(started.wait(), 30)
    try:
        yield server
    finally:
        server.stop.set()
        await serving


@contextlib.asynccontextmanager
async def connected(server: Server, **options: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection.

    options: arguments of `asyncio.open_connection`, such as `ssl`.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, **options)
    async with asyncio.timeout(20):
        yield reader, writer
    writer.transport.abort()


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def write_on(writer: asyncio.StreamWriter, piece: bytes, size: int = 16 * 2**20) -> None:
    """Write `size` bytes. Raises `ConnectionError` once the other side has closed."""
    for _ in range(size // len(piece)):
        writer.write(piece)
        await writer.drain()
