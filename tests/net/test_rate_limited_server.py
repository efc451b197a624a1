"""Connections that arrive faster than the rate limit wait in the kernel, and are served in order."""

from __future__ import annotations

import asyncio
import time

from tidings.net import socket_server
from tidings.net.rate_limited_server import RateLimitedServer


class Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"served")
        transport.close()


async def _call(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_connections_beyond_the_burst_are_accepted_at_the_rate_without_loss() -> None:
    server = RateLimitedServer(socket_server.listen("127.0.0.1", 0), Greeter, rate=50, burst=5)
    server.start()
    try:
        port, began = server.sockets[0].getsockname()[1], time.monotonic()
        assert await asyncio.gather(*[_call(port) for _ in range(15)]) == [b"served"] * 15
        # Ten of them waited, each for one token.
        assert time.monotonic() - began >= 10 / 50 - 0.03
    finally:
        server.close()


async def test_a_closed_server_accepts_no_connections() -> None:
    server = RateLimitedServer(socket_server.listen("127.0.0.1", 0), Greeter, rate=50, burst=5)
    server.start()
    port = server.sockets[0].getsockname()[1]
    server.close()
    server.close()
    try:
        await _call(port)
    except ConnectionRefusedError:
        return
    raise AssertionError("it was served")
