"""Frames over WebSocket, one in each message: JSON or MessagePack, by subprotocol."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter, WebSocket
from fastapi.responses import JSONResponse
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from network.connections.connections import Connections
from tidings.wire import connection, device
from tidings.wire.decoding import UNREADABLE

log = logging.getLogger(__name__)

# Seconds that a connection has to take its last frames before it is cut off.
FAREWELL = 5.0
_CUT = "tidings.cut"
CLOSE_CODES = {device.BAD_FRAME: 1007, device.SHUTDOWN: 1012, device.IDLE: 1000}
POLICY_VIOLATION = 1008
# What the application is given for text that is not UTF-8: no frame begins with it.
_NOT_UTF8 = "\N{REPLACEMENT CHARACTER}"


@dataclasses.dataclass(frozen=True, slots=True)
class _Codec:
    encode: Callable[[Any], bytes]
    decode: Callable[[Any], Any]
    as_text: bool


SUBPROTOCOLS = {
    "tidings.v1.json": _Codec(msgspec.json.Encoder().encode, msgspec.json.Decoder(device.FromDevice).decode, True),
    "tidings.v1.msgpack": _Codec(
        msgspec.msgpack.Encoder().encode,
        msgspec.msgpack.Decoder(device.FromDevice).decode,
        False,
    ),
}


class CuttableProtocol(WebSocketsSansIOProtocol):
    """uvicorn's own, except that the application can cut off a peer that reads nothing, and that it hears of text that
    is not UTF-8, where uvicorn logs a traceback and closes without a word."""

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        scope: Any = getattr(self, "scope", None)
        if scope is not None:
            scope["extensions"][_CUT] = self.transport.abort

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text":
            data = b"".join(self.frames)
            self.frames = [data if _is_utf8(data) else _NOT_UTF8.encode()]
        super().send_receive_event_to_app()


class WebSocketTransport:
    """Queue of encoded frames, and the task that writes them.

    The queue is bounded by its bytes. When a reader is so slow that it is full, what is queued is dropped (it is
    delivered again after the next login), the reason is the last thing said, and the connection closes.
    """

    def __init__(self, websocket: WebSocket, codec: _Codec, write_buffer: int) -> None:
        self._websocket = websocket
        self._codec = codec
        self._write_buffer = write_buffer
        self._loop = asyncio.get_running_loop()
        self._queue: collections.deque[bytes] = collections.deque()
        self._queued = 0
        self._ready = asyncio.Event()
        self.peer = str(websocket.client)
        self.is_open = True
        self.last_received = self._loop.time()
        self.reason = ""

    def send(self, frame: msgspec.Struct) -> None:
        if not self.is_open:
            return
        data = self._codec.encode(frame)
        self._queue.append(data)
        self._queued += len(data)
        self._ready.set()
        if self._queued > self._write_buffer:
            self._queue.clear()
            self._queue.append(self._codec.encode(device.Closing(reason=device.SLOW_READER)))
            self.close(device.SLOW_READER)

    def close(self, reason: str) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self.reason = reason
        self._ready.set()
        self._loop.call_later(FAREWELL, self._cut)

    def abort(self, reason: str) -> None:
        self.is_open = False
        self.reason = self.reason or reason
        self._cut()

    def _cut(self) -> None:
        cut = self._websocket.scope["extensions"].get(_CUT)
        if cut is not None:
            cut()

    async def write(self) -> None:
        """Write what is queued until the connection is closed, then say goodbye."""
        while self.is_open or self._queue:
            await self._ready.wait()
            self._ready.clear()
            while self._queue:
                data = self._queue.popleft()
                # What is being written counts as queued: only the peer's reading makes room.
                await self._websocket.send(
                    {"type": "websocket.send", "text": data.decode()}
                    if self._codec.as_text
                    else {"type": "websocket.send", "bytes": data}
                )
                self._queued -= len(data)
        await self._websocket.close(CLOSE_CODES.get(self.reason, POLICY_VIOLATION), self.reason)


def make_routes(connections: Connections, *, write_buffer: int) -> APIRouter:
    """The endpoint of live connections."""
    routes = APIRouter()

    @routes.websocket("/v1/connect")
    async def connect(websocket: WebSocket) -> None:
        offered = websocket.scope.get("subprotocols", [])
        name = next((name for name in offered if name in SUBPROTOCOLS), None)
        if name is None:
            detail = f"offer one of these subprotocols: {', '.join(SUBPROTOCOLS)}"
            answer = JSONResponse({"error": {"reason": "invalid", "detail": detail}}, 400)
            await websocket.send_denial_response(answer)
            return
        codec = SUBPROTOCOLS[name]
        await websocket.accept(subprotocol=name)
        await _serve(websocket, codec, connections, write_buffer)

    return routes


async def _serve(websocket: WebSocket, codec: _Codec, connections: Connections, write_buffer: int) -> None:
    transport = WebSocketTransport(websocket, codec, write_buffer)
    session = connections.open(transport)

    async def read() -> None:
        while transport.is_open:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            transport.last_received = asyncio.get_running_loop().time()
            data = message.get("bytes")
            try:
                frame = codec.decode(message["text"] if data is None else data)
            except (*UNREADABLE, TypeError) as error:
                why = "text that is not UTF-8" if message.get("text") == _NOT_UTF8 else str(error)
                session.close(device.BAD_FRAME, f"bad frame: {why}")
                return
            connections.received(session, frame)

    reader = asyncio.create_task(read())
    writer = asyncio.create_task(transport.write())
    try:
        await asyncio.wait([reader, writer], return_when=asyncio.FIRST_COMPLETED)
        if not transport.is_open:
            # Closed by us: the last frames are still on their way.
            await asyncio.wait([writer], timeout=FAREWELL)
    finally:
        transport.is_open = False
        connections.closed(session, transport.reason or "closed by peer")
        reader.cancel()
        writer.cancel()
        for task in (reader, writer):
            # The peer may have gone in the middle of a write.
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


MAX_MESSAGE = connection.MAX_FRAME
