"""Cost of HTTP connections: requests on connections that stay open, and clients that disconnect together.

    python -m benchmarks.http_connections [--requests 60000] [--disconnecting 10000]

The server is that of the Webapp with an application that reads the body and responds with 100 bytes. Its clients are
logged in. Prints requests per second and CPU of the server per request with 1, 16 and 64 connections, and then the
longest iteration of the server's event loop while all clients disconnect at once. Exits with 1 when a response is not
200 or a connection stays.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import IO, Any, cast

import uvloop
from starlette.types import Receive, Scope, Send

from tidings.aio.clock import SystemClock
from tidings.http.acceptor import HttpAcceptor
from tidings.http.connection_limiter import ConnectionLimiter
from tidings.http.limited_protocol import LimitedConfig, LimitedHttpProtocol
from tidings.http.listener_settings import UnauthenticatedSettings
from tidings.http.protocol import HttpLimits
from tidings.http.server import AsgiServer
from tidings.net import socket_server

REQUEST = (
    b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer abcdefghijklmnopqrstuvwxyz\r\n"
    b"User-Agent: bench\r\nAccept: */*\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n" + b"x" * 100
)
BODY = b"y" * 100
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", b"100"),
    (b"cache-control", b"no-cache, private"),
    (b"x-request-id", b"0123456789abcdef0123456789abcdef"),
]
CONNECTIONS = 20_000
# Connections opened before the responses on them are awaited.
AT_ONCE = 500
# Seconds between two readings of the server's event loop.
STEP = 0.001
LIMITS = UnauthenticatedSettings(
    rate=0.0,
    rate_each=0.0,
    connections=CONNECTIONS,
    connections_each=CONNECTIONS,
    waiting=CONNECTIONS,
    waiting_each=CONNECTIONS,
)


async def respond(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


async def serve() -> None:
    """Serve, and print readings since the last ones whenever a line arrives on standard input, until its end."""
    # As in the product's processes, no garbage collection happens while requests are served.
    gc.disable()
    limiter = ConnectionLimiter(LIMITS, SystemClock(), connections=CONNECTIONS, recognise=lambda authorization: True)
    server = AsgiServer(
        LimitedConfig(respond, LimitedHttpProtocol, HttpLimits(keep_alive=75.0), limiter=limiter),
        lambda listening, make: HttpAcceptor(listening, make, limiter),
        grace=1.0,
    )
    listening, stop, loop = socket_server.listen("127.0.0.1", 0), asyncio.Event(), asyncio.get_running_loop()
    serving = asyncio.create_task(server.serve_until(stop, [listening]))
    print(json.dumps(listening.getsockname()[1]), flush=True)
    longest, busy = 0.0, time.process_time()

    async def watch() -> None:
        nonlocal longest
        while True:
            before = loop.time()
            await asyncio.sleep(STEP)
            longest = max(longest, loop.time() - before - STEP)

    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    watching = None
    while line := await lines.readline():
        readings = {"cpu": time.process_time() - busy, "longest": longest, "open": len(limiter)}
        print(json.dumps(readings), flush=True)
        if line == b"watch\n" and watching is None:
            watching = asyncio.create_task(watch())
        longest, busy = 0.0, time.process_time()
    stop.set()
    await serving


class Client(asyncio.Protocol):
    """Connection that sends a number of requests, each after the response to the one before."""

    def __init__(self, requests: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = requests
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not instances of asyncio's classes.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._received.startswith(b"HTTP/1.1 200 "):
            self.done.set_exception(SystemExit(f"a response was {self._received[:100]!r}"))
            self.transport.abort()
        if not self._received.endswith(BODY):
            return
        self._received, self._left = b"", self._left - 1
        if self._left:
            self.transport.write(REQUEST)
        else:
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))


async def send(port: int, connections: int, requests: int) -> list[Client]:
    """Send requests on each of some connections, and return these, still open."""
    loop = asyncio.get_running_loop()
    clients: list[Client] = []
    # The server refuses requests when 1,000 wait.
    while left := min(connections - len(clients), AT_ONCE):
        made = [await loop.create_connection(lambda: Client(requests), "127.0.0.1", port) for _ in range(left)]
        clients += [client for _, client in made]
        await asyncio.gather(*(client.done for _, client in made))
    return clients


@contextlib.contextmanager
def server() -> Iterator[tuple[int, IO[bytes], IO[bytes]]]:
    """Run the server's process. Yields its port, its input and its output."""
    arguments = [sys.executable, "-m", "benchmarks.http_connections", "--serve"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        yield json.loads(child.stdout.readline()), child.stdin, child.stdout
        child.stdin.close()


def read(to_server: IO[bytes], from_server: IO[bytes], line: bytes = b"read\n") -> Any:
    to_server.write(line)
    to_server.flush()
    return json.loads(from_server.readline())


async def measure(requests: int, disconnecting: int) -> None:
    with server() as (port, *pipes):
        for connections in (1, 16, 64):
            each = requests // connections
            for client in await send(port, connections, 100):
                client.transport.abort()
            read(*pipes)
            began = time.perf_counter()
            clients = await send(port, connections, each)
            seconds, cpu = time.perf_counter() - began, read(*pipes)["cpu"]
            count = each * connections
            print(f"{connections:3} connections: {count / seconds:8,.0f}/s, {cpu / count * 1e6:6.1f} µs per request")
            for client in clients:
                client.transport.abort()
    with server() as (port, *pipes):
        clients = await send(port, disconnecting, 1)
        read(*pipes, line=b"watch\n")
        await asyncio.sleep(0.5)
        read(*pipes)
        began = time.perf_counter()
        for client in clients:
            client.transport.close()
        longest = cpu = 0.0
        while time.perf_counter() - began < 30:
            await asyncio.sleep(0.05)
            found = read(*pipes)
            longest, cpu = max(longest, found["longest"]), cpu + found["cpu"]
            if not found["open"]:
                break
        else:
            raise SystemExit(f"{found['open']} connections stayed")
        seconds = time.perf_counter() - began
    print(f"{disconnecting:,} disconnect: longest iteration {longest * 1e3:.0f} ms, {cpu * 1e3:.0f} ms of CPU", end="")
    print(f", all closed after {seconds:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=60_000, help="per number of connections (default 60,000)")
    parser.add_argument("--disconnecting", type=int, default=10_000, help="clients (default 10,000)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(serve() if options.serve else measure(options.requests, options.disconnecting))


if __name__ == "__main__":
    main()
