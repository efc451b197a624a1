"""WebSocket of the device API, with the interface of a framed TCP connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import Any

import msgspec
import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tidings.wire import device
from tidings.wire.decoding import UNREADABLE

log = logging.getLogger(__name__)

SUBPROTOCOL = "tidings.v1.msgpack"
MAX_FRAME = 4 * 1024 * 1024  # bytes
MAX_QUEUED = 10_000  # frames; beyond, the connection is aborted because the network does not read

_END = b""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(device.FromNetwork)


class WebSocketClient:
    """Live connection with one MessagePack map per message."""

    def __init__(self, socket: ClientConnection, handler: Any) -> None:
        self._socket = socket
        self._handler = handler
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue(MAX_QUEUED)
        self._reason = ""
        self._loop = asyncio.get_running_loop()
        self.is_open = True
        self.last_received = self._loop.time()
        handler.opened(self)
        self._tasks = (
            self._loop.create_task(self._read(), name="websocket read"),
            self._loop.create_task(self._write(), name="websocket write"),
        )

    def send(self, frame: msgspec.Struct) -> None:
        """Queue one frame. Does nothing when the connection is closed."""
        if not self.is_open:
            return
        try:
            self._outgoing.put_nowait(_encoder.encode(frame))
        except asyncio.QueueFull:
            self.abort("slow reader")

    def close(self, reason: str) -> None:
        """Write the queued frames, then close."""
        if self.is_open:
            self._reason = self._reason or reason
            self.is_open = False
            try:
                self._outgoing.put_nowait(_END)
            except asyncio.QueueFull:
                self.abort(reason)

    def abort(self, reason: str) -> None:
        """Close at once, and drop queued frames."""
        self._reason = self._reason or reason
        self.is_open = False
        for task in self._tasks:
            # A task that is cancelled before its first step never runs, and would not report the end.
            self._loop.call_soon(task.cancel)

    async def _write(self) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                message = await self._outgoing.get()
                if message is _END:
                    break
                await self._socket.send(message)
        await self._socket.close()

    async def _read(self) -> None:
        reason = ""
        try:
            async for message in self._socket:
                self.last_received = self._loop.time()
                self._handler.received(
                    self, _decoder.decode(message if isinstance(message, bytes) else message.encode())
                )
        except UNREADABLE as error:
            reason = f"bad frame: {error}"
        except websockets.ConnectionClosed as error:
            reason = str(error)
        except asyncio.CancelledError:
            reason = "aborted"
        except Exception as error:
            log.exception("connection.handler_failed")
            reason = f"handler failed: {error!r}"
        self.is_open = False
        self._tasks[1].cancel()
        with contextlib.suppress(Exception):
            await self._socket.close()
        self._handler.closed(self, self._reason or reason or "closed by peer")


async def dial(url: str, handler: Any, *, tls: ssl.SSLContext | None = None) -> WebSocketClient:
    """Open a connection. Raises `OSError` when the host cannot be reached or its response is no WebSocket upgrade.

    tls: context that verifies the host's certificate; None for the system's authorities
    """
    try:
        socket = await connect(
            url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            max_size=MAX_FRAME,
            compression=None,
            proxy=None,
            close_timeout=1,
            ssl=(tls or True) if url.startswith("wss:") else None,
        )
    except (websockets.WebSocketException, TimeoutError) as error:
        raise OSError(f"{url}: {error}") from error
    return WebSocketClient(socket, handler)
