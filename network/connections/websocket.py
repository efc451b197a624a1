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

from network.connections.connections import Connections
from network.connections.places import Place
from network.connections.websocket_protocol import BACKLOG, EXTENSION, NOT_UTF8, CuttableProtocol
from tidings.wire import connection, device
from tidings.wire.decoding import UNREADABLE

log = logging.getLogger(__name__)

# Seconds that a connection has to take its last frames before it is cut off.
FAREWELL = 5.0
CLOSE_CODES = {device.BAD_FRAME: 1007, device.SHUTDOWN: 1012, device.IDLE: 1000}
POLICY_VIOLATION = 1008
# Tokens that a WebSocket takes: its request costs more than a connection over TCP.
UPGRADE = 5.0


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


class WebSocketTransport:
    """Queue of encoded frames, and the task that writes them.

    The queue is bounded by its bytes. When a reader is so slow that it is full, what is queued is dropped (it is
    delivered again after the next login), the reason is the last thing said, and the connection closes.
    """

    def __init__(self, websocket: WebSocket, codec: _Codec, host: str, *, write_buffer: int) -> None:
        self._websocket = websocket
        self._codec = codec
        self._write_buffer = write_buffer
        self._loop = asyncio.get_running_loop()
        self._protocol: CuttableProtocol = websocket.scope["extensions"][EXTENSION]
        self._queue: collections.deque[bytes] = collections.deque()
        self._queued = 0
        self._unread = write_buffer
        self._ready = asyncio.Event()
        self.peer = str(websocket.client)
        self.host = host
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
        if self._queued > self._unread:
            self._protocol.pause(BACKLOG)
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
        self._protocol.abort()

    @property
    def is_held(self) -> bool:
        return self._protocol.is_held

    async def receive(self) -> str | bytes | None:
        """The next message, as soon as there is no reason not to take it; `None` when the peer has gone."""
        await self._protocol.readable.wait()
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        self.last_received = self._loop.time()
        data: bytes | None = message.get("bytes")
        text: str | None = message.get("text")
        return text if data is None else data

    def decode(self, message: str | bytes) -> Any:
        """The frame in a message. Raises what is `UNREADABLE`, and `TypeError` for text where bytes are due."""
        return self._codec.decode(message)

    def limit(self, *, frame: int, unread: int) -> None:
        self._unread = min(unread, self._write_buffer)
        self._protocol.limit(frame=frame, unread=unread)

    def pause(self, why: int) -> None:
        self._protocol.pause(why)

    def resume(self, why: int) -> None:
        self._protocol.resume(why)

    def check_reader(self, now: float) -> None:
        self._protocol.check_reader(now)

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
                if 2 * self._queued < self._unread:
                    self._protocol.resume(BACKLOG)
        self._protocol.release()
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
        peer = websocket.client.host if websocket.client is not None else ""
        # Some proxies add a line of their own to those of others.
        host = connections.speaks_for(peer, ",".join(websocket.headers.getlist("x-forwarded-for")))
        place = connections.enter(host, UPGRADE)
        if place is None:
            detail = "too many connections on which nobody has logged in"
            answer = JSONResponse({"error": {"reason": "rate_limited", "detail": detail}}, 429, {"Retry-After": "1"})
            await websocket.send_denial_response(answer)
            return
        place.on_proof(websocket.scope["extensions"][EXTENSION].on_login)
        try:
            await websocket.accept(subprotocol=name)
            transport = WebSocketTransport(websocket, SUBPROTOCOLS[name], host, write_buffer=write_buffer)
            await _serve(transport, connections, place)
        finally:
            place.left()

    return routes


async def _serve(transport: WebSocketTransport, connections: Connections, place: Place) -> None:
    session = connections.open(transport, place)

    async def read() -> None:
        while transport.is_open:
            message = await transport.receive()
            if message is None:
                return
            try:
                frame = transport.decode(message)
            except (*UNREADABLE, TypeError) as error:
                why = "text that is not UTF-8" if message == NOT_UTF8 else str(error)
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


MAX_MESSAGE = connection.MAX_FRAME
