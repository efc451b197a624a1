"""HTTP over connections that are kept: what a server may say, when, and how much of it is taken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tidings.client import exchanges
from tidings.client.errors import NetworkAway, NetworkSilent
from tidings.client.exchanges import HttpClient

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
MIB = 1024 * 1024

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Does as it is told with each connection, of which it counts how many there were."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        writer.close()


@contextlib.asynccontextmanager
async def serving(serve: Serve, *, connections: int = 1) -> AsyncIterator[tuple[Server, HttpClient]]:
    told = Server(serve)
    server = await asyncio.start_server(told, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = HttpClient(url, tls=None, connections=connections)
    yield told, client
    client.close()
    server.close()


def answering(*answers: bytes) -> Serve:
    """One after the other, each to a request without a body; then the connection ends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    return serve


async def get(client: HttpClient) -> bytes:
    async with client.request("GET", "/", {}) as answer:
        assert answer.status == 200
        return await answer.read()


async def test_requests_one_after_the_other_share_a_connection() -> None:
    async with serving(answering(OK, OK, OK)) as (server, client):
        assert [await get(client) for _ in range(3)] == [b"ok"] * 3
    assert server.connections == 1


async def test_a_connection_that_was_idle_for_too_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "KEPT_SECONDS", 0.0)
    async with serving(answering(OK, OK)) as (server, client):
        assert [await get(client) for _ in range(2)] == [b"ok"] * 2
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign",
    ],
)
async def test_an_answer_is_read_to_its_end_and_nothing_follows_what_may_not_be_followed(answer: bytes) -> None:
    async with serving(answering(answer)) as (server, client):
        assert [await get(client) for _ in range(2)] == [b"ok"] * 2
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + bytes([120]) * 100_000,
    ],
)
async def test_what_is_cut_off_is_no_answer(answer: bytes) -> None:
    async with serving(answering(answer)) as (_, client):
        with pytest.raises(NetworkAway):
            await get(client)
        with pytest.raises(NetworkAway):
            await get(client)


async def test_a_refusal_before_the_end_of_the_request_is_heard_and_no_more_is_sent() -> None:
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

    async with serving(refuse) as (server, client):
        for _ in range(2):
            async with client.request("POST", "/", {"Content-Length": str(2**40)}, body=endless()) as answer:
                assert (answer.status, await answer.read()) == (507, b"full")
    assert server.connections == 2
    assert sent < 256 * MIB


async def test_no_more_is_taken_from_a_server_than_its_reader_wants() -> None:
    written = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 * MIB))
        for _ in range(64):
            writer.write(bytes(MIB))
            await writer.drain()
            written += MIB

    async with serving(pour) as (_, client), client.request("GET", "/", {}) as answer:
        chunks = answer.chunks()
        size = len(await anext(chunks))
        for _ in range(3000):
            await asyncio.sleep(0)
        assert written < 32 * MIB
        async for chunk in chunks:
            size += len(chunk)
        assert size == 64 * MIB


async def test_a_server_that_falls_silent_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "SILENCE_SECONDS", 0.05)

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok")
        await reader.read()

    async with serving(stall) as (_, client):
        with pytest.raises(NetworkSilent):
            await get(client)


async def test_one_request_too_many_waits_for_a_connection() -> None:
    async with serving(answering(*[OK] * 10), connections=2) as (server, client):
        assert await asyncio.gather(*(get(client) for _ in range(10))) == [b"ok"] * 10
    assert server.connections <= 2


async def test_a_header_with_a_line_break_is_not_sent() -> None:
    async with serving(answering(OK)) as (server, client):
        with pytest.raises(ValueError, match="line break"):
            async with client.request("GET", "/", {"Authorization": "Bearer a\r\nX: y"}):
                pass
    assert server.connections == 0
