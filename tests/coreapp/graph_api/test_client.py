"""Errors of the client of the Graph API: they show whether a request may have had an effect. Hostile servers."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from coreapp.graph_api.client import FileForm, GraphClient, NotPosted, ResponseMissing
from tidings.egress.guard import EgressGuard
from tidings.egress.settings import OutgoingSettings

LOOPBACK = OutgoingSettings((ipaddress.ip_network("127.0.0.0/8"),))
Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(handle: Handle) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await handle(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v25.0/1/messages"
    finally:
        server.close()


@contextlib.asynccontextmanager
async def calling(seconds: float = 2.0) -> AsyncIterator[GraphClient]:
    client = GraphClient(EgressGuard(LOOPBACK), response_seconds=seconds)
    try:
        yield client
    finally:
        client.close()


async def read_request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next((int(line.split(":")[1]) for line in head.lower().split("\r\n") if "content-length" in line), 0)
    return head, await reader.readexactly(length)


async def test_requests_share_a_connection_and_carry_the_token() -> None:
    seen: list[tuple[str, bytes]] = []
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            seen.append(await read_request(reader))
            writer.write(b"HTTP/1.1 200 OK\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\nok")

    async with serving(handle) as url, calling() as client:
        for body in (b"one", b"two"):
            response = await client.post(url, "T0KEN", body)
            assert (response.status, response.content, response.headers["retry-after"]) == (200, b"ok", "3")
        assert (await client.get(f"{url}?fields=a", "T0KEN")).status == 200
    assert connections == 1
    assert [body for _, body in seen] == [b"one", b"two", b""]
    assert seen[0][0].startswith("POST /v25.0/1/messages HTTP/1.1\r\n")
    assert "Authorization: Bearer T0KEN\r\n" in seen[0][0]
    assert seen[2][0].startswith("GET /v25.0/1/messages?fields=a HTTP/1.1\r\n")


async def test_a_refused_connection_raises_notposted() -> None:
    async with calling() as client:
        with pytest.raises(NotPosted):
            await client.post("http://127.0.0.1:1/v25.0/1/messages", "t", b"{}")


async def test_a_private_address_is_refused_unless_it_is_allowed() -> None:
    client = GraphClient(EgressGuard(OutgoingSettings()))
    with pytest.raises(NotPosted, match="TIDINGS_OUTGOING_ALLOW"):
        await client.post("http://127.0.0.1:1/v25.0/1/messages", "t", b"{}")


@pytest.mark.parametrize("url", ["ftp://example.com/x", "http:///x", "x"])
async def test_an_invalid_url_posts_nothing(url: str) -> None:
    async with calling() as client:
        with pytest.raises(NotPosted):
            await client.post(url, "t", b"{}")


async def test_a_token_with_a_line_break_posts_nothing() -> None:
    async with calling() as client:
        with pytest.raises(NotPosted, match="token"):
            await client.post("http://127.0.0.1:1/x", "t\r\nX: y", b"{}")


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"not HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + b"x" * 300_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40_000 + b"\r\n\r\n",
    ],
)
async def test_a_closed_connection_or_invalid_response_leaves_the_outcome_unknown(response: bytes) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(response)
        await writer.drain()

    async with serving(handle) as url, calling() as client:
        with pytest.raises(ResponseMissing):
            await client.post(url, "t", b"{}")


async def test_a_silent_server_leaves_the_outcome_unknown() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await reader.read()

    async with serving(handle) as url, calling(0.2) as client:
        with pytest.raises(ResponseMissing, match=r"no response within 0\.2 s"):
            await client.post(url, "t", b"{}")


async def test_a_connection_that_the_server_ends_is_not_used_again() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    async with serving(handle) as url, calling() as client:
        assert [(await client.post(url, "t", b"{}")).status for _ in range(2)] == [200, 200]
    assert connections == 2


FORM = FileForm({"type": "image/png"}, "a.png", "image/png")


async def test_a_connection_is_not_used_again_after_an_upload_was_refused_early() -> None:
    posted: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = next(int(line.split(":")[1]) for line in head.split("\r\n") if "content-length" in line)
            if "multipart" in head:
                # As proxies do: respond at once, then discard the rest of the body.
                writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
                await reader.readexactly(length)
                continue
            posted.append(await reader.readexactly(length))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0)

    async with serving(handle) as url, calling() as client:
        assert (await client.upload(url, "t", FORM, 5_000_000, pieces())).status == 401
        assert (await client.post(url, "t", b"a message")).status == 200
    assert posted == [b"a message"]


async def test_a_connection_lost_before_the_end_of_an_upload_leaves_its_outcome_unknown() -> None:
    closed = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
        closed.set()

    async def pieces() -> AsyncIterator[bytes]:
        yield bytes(100_000)
        await closed.wait()
        for _ in range(100):
            # The client notices the end in one of the next iterations of the event loop.
            await asyncio.sleep(0)

    async with serving(handle) as url, calling() as client:
        with pytest.raises(ResponseMissing):
            await client.upload(url, "t", FORM, 100_000, pieces())
