"""The protocol class with a server of uvicorn that is not ours."""

from __future__ import annotations

import asyncio
import socket

import uvicorn
from starlette.types import Receive, Scope, Send

from harness import polling
from tests.http.support import read_response
from tidings.http.protocol import HttpProtocol


async def test_a_plain_server_of_uvicorn_serves_the_protocol_class_and_drains_it() -> None:
    go_on, paths = asyncio.Event(), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        if scope["path"] == "/held":
            await go_on.wait()
        body = scope["path"].encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(app, http=HttpProtocol, ws="none", lifespan="off", log_config=None, timeout_keep_alive=60)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        serving = asyncio.create_task(server.serve([listening]))
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(*address)
            idle, unused = await asyncio.open_connection(*address)
            writer.write(b"GET /one HTTP/1.1\r\n\r\n")
            assert await read_response(reader) == (200, b"/one")
            writer.write(b"GET /two HTTP/1.1\r\n\r\nGET /three HTTP/1.1\r\n\r\n")
            assert [await read_response(reader), await read_response(reader)] == [(200, b"/two"), (200, b"/three")]
            writer.write(b"GET /held HTTP/1.1\r\n\r\n")
            await polling.until(lambda: "/held" in paths)
            server.should_exit = True
            assert await idle.read() == b""
            assert not reader.at_eof()
            go_on.set()
            assert await read_response(reader) == (200, b"/held")
            assert await reader.read() == b""
            await serving
        unused.close()
        writer.close()
