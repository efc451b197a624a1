"""A web server for callbacks: hands their bodies to whoever looks at them, and answers 200."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

MAX_BODY = 16 * 1024 * 1024  # bytes; a larger one is answered 413
GRACE = 1  # seconds that requests in progress have at the end


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals belong to the command.
        yield


@contextlib.asynccontextmanager
async def receiving(host: str, port: int, show: Callable[[bytes], None]) -> AsyncIterator[tuple[str, int]]:
    """Where it listens: POSTs to every path are shown. Port 0 is any that is free.

    Raises `OSError` when it cannot listen there, and `OverflowError` for what is no port.
    """

    async def callback(request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return Response(status_code=413)
        show(bytes(body))
        return Response()

    app = Starlette(routes=[Route("/{path:path}", callback, methods=["POST"])])
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        config = uvicorn.Config(
            app, ws="none", lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=GRACE
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve([listening]))
        try:
            name = listening.getsockname()
            yield name[0], name[1]
        finally:
            server.should_exit = True
            await serving
