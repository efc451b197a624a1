"""HTTP server with a scripted response."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator


class Server:
    """Server that keeps the requests and sends `response` after `delay` seconds.

    response: bytes of the response; an empty one closes the connection.
    """

    def __init__(self, response: bytes, delay: float) -> None:
        self._response = response
        self._delay = delay
        self.requests: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")), 0)
            self.requests.append(head + await reader.readexactly(length))
            await asyncio.sleep(self._delay)
            writer.write(self._response)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def serving(
    response: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    *,
    tls: ssl.SSLContext | None = None,
    delay: float = 0.0,
) -> AsyncIterator[Server]:
    """Run the server on a free port of this machine."""
    made = Server(response, delay)
    listener = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = listener.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        listener.close()
        for writer in made.writers:
            writer.transport.abort()
        await asyncio.sleep(0)
