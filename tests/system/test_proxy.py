"""The harness's proxy cuts one exchange at the chosen moment, and the connections after it work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from harness.http_connection import Connection, NoResponse
from harness.proxy import Cut, Proxy

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"


class Server:
    """Records what it receives, and responds to each whole request."""

    def __init__(self) -> None:
        self.received = b""
        self.responses = 0
        self.ended = asyncio.Event()  # a connection was closed

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1024):
                self.received += data
                if data.endswith(b"\r\n\r\n"):
                    self.responses += 1
                    writer.write(RESPONSE)
        except ConnectionError:
            pass
        finally:
            writer.close()
            self.ended.set()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, Proxy]]:
    found = Server()
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    proxy = Proxy(*listening.sockets[0].getsockname()[:2])
    await proxy.start()
    yield found, proxy
    await proxy.stop()
    listening.close()


async def connect(proxy: Proxy) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, *proxy.address)
    return connection


@pytest.mark.parametrize(
    ("cut", "received", "responses"),
    [(Cut.BEFORE_REQUEST, b"", 0), (Cut.AFTER_FIRST_BYTE, b"G", 0), (Cut.BEFORE_RESPONSE, REQUEST, 1)],
)
async def test_an_exchange_is_cut_at_its_moment(
    server: tuple[Server, Proxy], cut: Cut, received: bytes, responses: int
) -> None:
    found, proxy = server
    connection = await connect(proxy)
    assert (await connection.request(REQUEST))[0] == 200
    found.received, found.responses = b"", 0
    done = proxy.cut_next(cut)
    with pytest.raises(NoResponse):
        await connection.request(REQUEST)
    assert done.done()
    await asyncio.wait_for(found.ended.wait(), 5.0)
    assert (found.received, found.responses) == (received, responses)
    later = await connect(proxy)
    assert (await later.request(REQUEST))[0] == 200
    later.close()


async def test_a_cancelled_cut_is_not_made(server: tuple[Server, Proxy]) -> None:
    _, proxy = server
    proxy.cut_next(Cut.BEFORE_REQUEST).cancel()
    connection = await connect(proxy)
    assert (await connection.request(REQUEST))[0] == 200
    connection.close()
