"""HTTP by hand, for requests that a client library would not send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tests.webapp.conftest import Served


async def call(
    api: Served, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], Any]:
    """Make one request on a new connection."""
    content = b"" if body is None else json.dumps(body).encode()
    fields = {"Host": "tests", "Content-Length": str(len(content)), **(headers or {})}
    if "Authorization" in api.http.headers:
        fields.setdefault("Authorization", api.http.headers["Authorization"])
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return await exchange(api.port, head.encode() + b"\r\n" + content)


async def exchange(port: int, *parts: bytes) -> tuple[int, dict[str, str], Any]:
    """Send bytes and read one response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
        async with asyncio.timeout(20):
            return await read_response(reader)
    finally:
        writer.transport.abort()


async def stream(port: int, head: bytes, chunks: AsyncIterator[bytes]) -> tuple[int, dict[str, str], Any]:
    """Send a head and then chunks until they end or the response has arrived, and return the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def write() -> None:
        writer.write(head)
        async for chunk in chunks:
            writer.write(chunk)
            await writer.drain()

    writing = asyncio.create_task(write())
    try:
        async with asyncio.timeout(30):
            return await read_response(reader)
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        writer.transport.abort()


async def read_response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], Any]:
    """Return the status, the headers in lower case, and the JSON body."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    payload = json.loads(await reader.readexactly(int(headers["content-length"])))
    return int(first.split()[1]), headers, payload
