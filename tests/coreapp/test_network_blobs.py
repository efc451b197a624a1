"""The client of the network's store of blobs, against servers that are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from coreapp.errors import UpstreamAway
from coreapp.media.blobs import NetworkBlobs

TOKEN = "a-token-that-nobody-may-read"


async def content() -> AsyncIterator[bytes]:
    yield b"ciphertext"


@pytest.mark.parametrize(
    "answer", [b"", b"no HTTP at all\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"]
)
async def test_what_is_no_answer_is_told_without_the_token(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    blobs = NetworkBlobs(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "15550001111", TOKEN)
    with pytest.raises(UpstreamAway) as up:
        await blobs.upload(content(), 10)
    with pytest.raises(UpstreamAway) as down:
        async with blobs.download("x") as chunks:
            async for _ in chunks:
                pass
    for error in (up.value, down.value):
        # As it is logged: by itself, and with its cause.
        assert TOKEN not in f"{error} {error!r}"
        assert "127.0.0.1" in str(error)
    await blobs.close()
    server.close()
