"""Bounds on the connections and the memory that unauthenticated HTTP clients can occupy."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import msgspec
import pytest
import websockets
from fastapi import FastAPI, WebSocket

from harness import polling
from network.connections.websocket_connection import SUBPROTOCOLS, WebSocketConnection
from network.connections.websocket_handshake import EXTENSION
from network.http_server import HttpServer
from network.settings import Limits
from tests.conftest import DatabaseFactory
from tests.live_objects import live_objects
from tests.network.support import TIMEOUT, Network
from tidings.aio.clock import SystemClock
from tidings.http.connection_limiter import ConnectionLimiter
from tidings.http.limited_protocol import LimitedHttpProtocol
from tidings.http.listener_settings import UnauthenticatedSettings
from tidings.http.protocol import HEAD_TIMEOUT
from tidings.net.tls import TlsFiles
from tidings.wire.connection import Connection
from tidings.wire.unfinished import IncompleteFrames

Address = tuple[str, int]


def make_app() -> FastAPI:
    app = FastAPI()

    @app.get("/health")
    async def health() -> str:
        return "ok"

    @app.websocket("/connect")
    async def connect(websocket: WebSocket) -> None:
        await websocket.accept(websocket.scope["subprotocols"][0])
        websocket.scope["extensions"][EXTENSION].hand_over(
            WebSocketConnection(
                SUBPROTOCOLS["tidings.v1.json"], Silent(), "", max_write_buffer=2**20, unfinished=IncompleteFrames()
            )
        )

    return app


class Silent:
    """Handler of a connection that reads frames and sends none."""

    def __init__(self) -> None:
        self.frames: list[object] = []

    def opened(self, connection: Connection) -> None:
        pass

    def received(self, connection: Connection, frame: object) -> None:
        self.frames.append(frame)

    def closed(self, connection: Connection, reason: str) -> None:
        pass


def open_websocket(address: Address) -> websockets.connect:
    return websockets.connect(
        "ws://{}:{}/connect".format(*address), subprotocols=[websockets.Subprotocol("tidings.v1.json")]
    )


@contextlib.asynccontextmanager
async def serve(
    connections: int = 10, head_timeout: float = HEAD_TIMEOUT, *, is_overloaded: bool = False
) -> AsyncIterator[Address]:
    limiter = ConnectionLimiter(
        UnauthenticatedSettings(), SystemClock(), connections=connections, is_overloaded=lambda *_: is_overloaded
    )
    server = HttpServer(("127.0.0.1", 0), TlsFiles(), make_app(), limiter=limiter, head_timeout=head_timeout)
    address = server.open()
    stop = asyncio.Event()
    serving = asyncio.create_task(server.run(stop))
    yield address
    stop.set()
    await serving


@contextlib.asynccontextmanager
async def connected(address: Address) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*address)
    async with asyncio.timeout(TIMEOUT):
        yield reader, writer
    writer.transport.abort()


async def is_served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Return whether the server responds; False when it closed the connection without a response."""
    try:
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        response = await reader.readuntil(b'"ok"')
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return response.startswith(b"HTTP/1.1 200")


async def until_served(address: Address) -> None:
    """Open connections until one is served."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            async with connected(address) as connection:
                if await is_served(*connection):
                    return


async def test_an_endless_request_head_is_refused() -> None:
    async with serve() as address, connected(address) as (_, writer):
        writer.write(b"GET / HTTP/1.1\r\nA: ")
        with pytest.raises(ConnectionError):
            for _ in range(1_000):
                writer.write(b"a" * 16_000)
                await writer.drain()


async def test_a_request_that_is_not_dispatched_is_refused_as_unavailable() -> None:
    async with serve(is_overloaded=True) as address, connected(address) as (reader, writer):
        writer.write(b"GET /v1/keys/15550100001 HTTP/1.1\r\nHost: x\r\n\r\n")
        response = await reader.readuntil(b"}}")
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in head.lower()
    assert msgspec.json.decode(body)["error"]["reason"] == "unavailable"


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nA: a"])
async def test_a_late_request_head_closes_the_connection(begun: bytes) -> None:
    async with serve(head_timeout=0.05) as address, connected(address) as (reader, writer):
        writer.write(begun)
        assert await reader.read() == b""


async def test_a_connection_over_the_limit_replaces_the_oldest_idle_one() -> None:
    async with serve(connections=2) as address, connected(address) as first, connected(address) as second:
        assert await is_served(*first)
        assert await is_served(*second)
        async with connected(address) as third:
            assert await is_served(*third)
            assert await first[0].read() == b""
            assert await is_served(*second)
        # A closed connection frees a slot.
        await until_served(address)


async def test_a_websocket_occupies_no_http_connection_slot() -> None:
    async with (
        serve(connections=1, head_timeout=0.05) as address,
        open_websocket(address) as first,
        open_websocket(address) as second,
    ):
        async with connected(address) as held:
            assert await is_served(*held)
        # It has no request head either, so no head time-out applies.
        for socket in (first, second):
            async with asyncio.timeout(TIMEOUT):
                await (await socket.ping())


@pytest.mark.parametrize("pair", [("tcp", "sqlite")])
async def test_the_network_applies_its_http_connection_limit(database_factory: DatabaseFactory) -> None:
    network = Network((await database_factory("network")).settings, "tcp")
    await network.start(limits=Limits(http=1))
    async with connected(network.addresses.http) as held, connected(network.addresses.http) as (reader, writer):
        held[1].write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await held[0].readline()).split()[1] == b"200"
        # The other connection waits until the first has been idle long enough to be closed.
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"200"
        assert (await held[0].read()).endswith(b"}")
    await network.remove()


async def test_the_http_request_of_a_websocket_is_freed(no_collector: None) -> None:
    async with serve() as address, open_websocket(address):
        await polling.until(lambda: not live_objects(LimitedHttpProtocol))


HANDSHAKE = {
    "Host": "x",
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "tidings.v1.json",
}


def handshake(method: str = "GET", **changes: str) -> bytes:
    lines = (HANDSHAKE | changes).items()
    return f"{method} /connect HTTP/1.1\r\n{''.join(f'{n}: {v}' + chr(13) + chr(10) for n, v in lines)}\r\n".encode()


async def test_a_handshake_gets_the_response_of_rfc_6455_and_a_ping_behind_it_a_pong() -> None:
    async with serve() as address, connected(address) as (reader, writer):
        # A masked ping with the payload "hi", in the same segment.
        writer.write(handshake() + b"\x89\x82\0\0\0\0hi")
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 101 ")
        # RFC 6455, section 1.3.
        assert b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n" in head
        assert b"sec-websocket-protocol: tidings.v1.json\r\n" in head
        assert await reader.readexactly(4) == b"\x8a\x02hi"


@pytest.mark.parametrize(
    "sent",
    [
        handshake("POST"),
        handshake(**{"Sec-WebSocket-Version": "8"}),
        handshake(**{"Sec-WebSocket-Key": ""}),
        handshake(**{"Sec-WebSocket-Key": "c2hvcnQ="}),
        handshake(**{"Sec-WebSocket-Key": "no base64!"}),
        handshake().replace(b"\r\n\r\n", b"\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"),
        handshake().replace(b"\r\n\r\n", b"\r\n" + b"A: a\r\n" * 128 + b"\r\n"),
    ],
    ids=["POST", "version", "no key", "short key", "no base64", "two keys", "many headers"],
)
async def test_a_handshake_that_is_not_valid_is_refused_in_the_format_of_the_api(sent: bytes) -> None:
    async with serve() as address, connected(address) as (reader, writer):
        writer.write(sent)
        received = await reader.read()
    assert received.startswith(b"HTTP/1.1 400 ")
    assert msgspec.json.decode(received.partition(b"\r\n\r\n")[2])["error"]["reason"] == "invalid"


async def test_a_handshake_behind_a_request_in_progress_is_refused_after_its_response() -> None:
    async with serve() as address, connected(address) as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + handshake())
        received = await reader.read()
    assert re.findall(rb"HTTP/1\.1 (\d+) ", received) == [b"200", b"400"]


async def test_too_much_behind_a_handshake_ends_the_connection() -> None:
    async with serve() as address, connected(address) as (reader, writer):
        writer.write(handshake() + bytes(4 * 1024 + 1))
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""


async def test_a_path_without_websockets_denies_the_handshake() -> None:
    async with serve() as address, connected(address) as (reader, writer):
        writer.write(handshake().replace(b"/connect", b"/elsewhere"))
        received = await reader.read()
    assert received.startswith(b"HTTP/1.1 403 ")
