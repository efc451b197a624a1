"""Connections of the network's HTTP client: kept, broken, refused on the way and silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.client.conftest import unregistered_device
from tests.client.support import pieces
from tidings.client import errors, http
from tidings.client.http import NetworkApi

BEN = "15550002222"
MIB = 1024 * 1024
KEPT = b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"database":"ok"}'

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Server that handles each connection as scripted, and counts them."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.connections = 0
        self.url = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        writer.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[NetworkApi]:
        server = await asyncio.start_server(self, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with NetworkApi(self.url) as api:
            yield api
        server.close()


def serving(*responses: bytes) -> Server:
    """Return a server that sends the responses one after the other, each to a request without a body, and then
    closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for response in responses:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response)
            await writer.drain()

    return Server(serve)


async def test_consecutive_calls_share_a_connection() -> None:
    server = serving(KEPT, KEPT, KEPT)
    async with server.running() as api:
        for _ in range(3):
            await api.health(seconds=5)
    assert server.connections == 1


async def test_a_connection_idle_for_too_long_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "KEPT_SECONDS", 0.0)
    server = serving(KEPT, KEPT)
    async with server.running() as api:
        for _ in range(2):
            await api.health(seconds=5)
    assert server.connections == 2


async def test_a_connection_closed_while_idle_is_not_reused() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(KEPT)
        writer.write_eof()
        # The other side has detected it.
        await reader.read()
        gone.set()

    server = Server(serve)
    async with server.running() as api:
        for _ in range(3):
            await api.health(seconds=5)
            await gone.wait()
            gone.clear()
    assert server.connections == 3


async def test_bytes_after_a_response_are_not_read_as_the_next_response() -> None:
    foreign = b'HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{"database":"foreign"}'
    server = serving(KEPT + foreign)
    async with server.running() as api:
        for _ in range(2):
            with contextlib.suppress(errors.NetworkUnavailable):
                assert await api.health(seconds=5) == {"database": "ok"}
    assert server.connections == 2


async def test_a_call_that_may_have_taken_effect_is_not_repeated() -> None:
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1

    async with Server(serve).running() as api:
        with pytest.raises(errors.NetworkUnavailable) as raised:
            await api.block(unregistered_device(), BEN)
    assert type(raised.value) is errors.NetworkUnavailable
    assert requests == 1


async def test_a_refusal_during_an_upload_stops_the_upload() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 507 Full\r\nContent-Length: 4\r\n\r\nfu")
        writer.write(b"ll")
        await reader.read()

    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += MIB
            yield bytes(MIB)
            await asyncio.sleep(0)

    server = Server(refuse)
    async with server.running() as api:
        for _ in range(2):
            with pytest.raises(errors.NetworkFull):
                await api.upload_blob(unregistered_device(), endless(), 2**40)
    assert server.connections == 2
    assert sent < 256 * MIB


async def test_a_download_reads_no_faster_than_its_reader() -> None:
    written = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 * MIB))
        for _ in range(64):
            writer.write(bytes(MIB))
            await writer.drain()
            written += MIB

    async with Server(pour).running() as api, api.download_blob(unregistered_device(), "x") as chunks:
        size = len(await anext(chunks))
        for _ in range(3000):
            await asyncio.sleep(0)
        assert written < 32 * MIB
        async for chunk in chunks:
            size += len(chunk)
        assert size == 64 * MIB


async def test_a_silent_download_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SILENCE_SECONDS", 0.05)

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok")
        await reader.read()

    async with Server(stall).running() as api:
        with pytest.raises(errors.NetworkTimeout):
            async with api.download_blob(unregistered_device(), "x") as chunks:
                async for _ in chunks:
                    pass


async def test_a_stalled_upload_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SILENCE_SECONDS", 0.2)
    over = asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()

    async with Server(stall).running() as api:
        with pytest.raises(errors.NetworkTimeout):
            await api.upload_blob(unregistered_device(), pieces(bytes(64 * MIB)), 64 * MIB)
        over.set()


async def test_a_token_with_a_line_break_is_not_sent() -> None:
    server = serving(KEPT)
    async with server.running() as api:
        with pytest.raises(ValueError, match="header"):
            await api.count_keys(unregistered_device("a\r\nX: y"))
