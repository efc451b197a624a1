"""WebSocket of the device API on a socket that never sends anything."""

from __future__ import annotations

import asyncio
from typing import Any

from tidings.client.websocket import WebSocketClient


class SilentSocket:
    """Open WebSocket of a peer that sends nothing."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def __aiter__(self) -> SilentSocket:
        return self

    async def __anext__(self) -> bytes:
        await self.closed.wait()
        raise StopAsyncIteration

    async def close(self) -> None:
        self.closed.set()


class Ends:
    """Handler that records the end of its connection."""

    def __init__(self) -> None:
        self.reason = ""
        self.ended = asyncio.Event()

    def opened(self, transport: Any) -> None: ...

    def received(self, transport: Any, frame: Any) -> None: ...

    def closed(self, transport: Any, reason: str) -> None:
        self.reason = reason
        self.ended.set()


async def test_a_connection_aborted_in_the_iteration_that_opened_it_reports_its_end() -> None:
    socket, ends = SilentSocket(), Ends()
    WebSocketClient(socket, ends).abort("dropped")  # type: ignore[arg-type]
    async with asyncio.timeout(5):
        await ends.ended.wait()
    assert ends.reason == "dropped"
    assert socket.closed.is_set()
