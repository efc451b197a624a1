"""HTTP server that receives callbacks: passes their bodies to a function and answers 200."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidings.http.protocol import HttpLimits, HttpProtocol
from tidings.http.server import AsgiConfig, AsgiServer

MAX_BODY = 16 * 1024 * 1024  # bytes; a larger body is answered 413
GRACE = 1.0  # seconds that requests in progress have to finish when the server stops


@contextlib.asynccontextmanager
async def receiving(host: str, port: int, show: Callable[[bytes], None]) -> AsyncIterator[tuple[str, int]]:
    """Serve while the block runs. Yields the host and port that it listens on.

    The body of a POST to any path is passed to `show`; an `OSError` of it is answered 503. Port 0 selects a free port.
    Raises `OSError` when it cannot listen there, and `OverflowError` for an invalid port number.
    """

    async def callback(request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return Response(status_code=413)
        try:
            show(bytes(body))
        except OSError:
            return Response(status_code=503)
        return Response()

    app = Starlette(routes=[Route("/{path:path}", callback, methods=["POST"])])
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server, stop = AsgiServer(AsgiConfig(app, HttpProtocol, HttpLimits()), grace=GRACE), asyncio.Event()
    with socket.create_server((host, port), family=family) as listening:
        serving = asyncio.create_task(server.serve_until(stop, [listening]))
        try:
            name = listening.getsockname()
            yield name[0], name[1]
        finally:
            stop.set()
            await serving
