"""A TCP connection that carries frames: 4 bytes of length (big-endian), then one MessagePack map.

Writes of one turn of the event loop go out as one segment. The write buffer is bounded: a peer that does not read is
disconnected, because to wait for it here would let one slow reader hold up everybody else.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Protocol, cast

import msgspec

from tidings.runtime import tls_server
from tidings.runtime.tls import HANDSHAKE_SECONDS
from tidings.runtime.tls_server import Handshakes, TlsServer
from tidings.wire.decoding import UNREADABLE

log = logging.getLogger(__name__)

MAX_FRAME = 4 * 1024 * 1024
MAX_WRITE_BUFFER = 16 * 1024 * 1024
# Seconds that a closed connection may take to write what is queued.
LINGER = 5.0

_encoder = msgspec.msgpack.Encoder()


class Disconnected(Exception):
    """The connection is gone; what was in flight may or may not have been done."""


class NotSent(Disconnected):
    """The connection was gone before the frame was written: the peer has not seen it."""


class FrameTooLong(ValueError):
    """The peer would close the connection over this frame. It was not sent: send less."""


class Handler(Protocol):
    """Who owns a connection. All three are called on the event loop and must not block."""

    def opened(self, connection: Connection) -> None:
        """The connection is up; sending is possible from here on."""
        ...

    def received(self, connection: Connection, frame: Any) -> None:
        """One frame; an exception closes the connection."""
        ...

    def closed(self, connection: Connection, reason: str) -> None:
        """The last call."""
        ...


class Connection(asyncio.Protocol):
    """One side of a framed connection; `frames` is the union of frame types that may arrive.

    last_words: makes the frame that tells the peer what was wrong with a frame of its before the connection is closed.
    linger: seconds that a closed connection may take to write what is queued.
    """

    def __init__(
        self,
        frames: Any,
        handler: Handler,
        *,
        max_frame: int = MAX_FRAME,
        max_write_buffer: int = MAX_WRITE_BUFFER,
        last_words: Callable[[str], msgspec.Struct] | None = None,
        linger: float = LINGER,
    ) -> None:
        self._decoder = msgspec.msgpack.Decoder(frames)
        self._handler = handler
        self._max_frame = max_frame
        self._max_write_buffer = max_write_buffer
        self._last_words = last_words
        self._linger = linger
        self._transport: asyncio.Transport | None = None
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._flush_scheduled = False
        self._reason = ""
        self._lingering: asyncio.TimerHandle | None = None
        self.peer = ""
        self.is_open = False
        self.last_received = 0.0
        # Counts the writes: what was queued before one is, after it, on its way to the peer.
        self.writes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of `asyncio.Transport` on uvloop.
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self.last_received = self._loop.time()
        self.peer = str(transport.get_extra_info("peername"))
        self.is_open = True
        self._handler.opened(self)

    def data_received(self, data: bytes) -> None:
        self.last_received = self._loop.time()
        incoming = self._incoming
        incoming += data
        position, end = 0, len(incoming)
        view = memoryview(incoming)
        try:
            while end - position >= 4:
                size = int.from_bytes(view[position : position + 4], "big")
                if size > self._max_frame:
                    self._refuse(f"a frame of {size} bytes is over the limit of {self._max_frame}")
                    return
                if end - position - 4 < size:
                    break
                try:
                    frame = self._decoder.decode(view[position + 4 : position + 4 + size])
                except UNREADABLE as error:
                    self._refuse(f"bad frame: {error}")
                    return
                position += 4 + size
                self._handler.received(self, frame)
                if not self.is_open:
                    return
        except Exception as error:
            log.exception("connection.handler_failed", extra={"peer": self.peer})
            self.close(f"handler failed: {error!r}")
            return
        finally:
            view.release()
        if position:
            del incoming[:position]

    def _refuse(self, reason: str) -> None:
        if self._last_words is not None:
            self.send(self._last_words(reason))
        self.close(reason)

    def send(self, frame: msgspec.Struct) -> None:
        """Queue one frame; it is written at the end of this turn of the loop. Dropped when the connection is closed.

        Raises `FrameTooLong` for one over `MAX_FRAME`, whatever this side takes itself; the connection stays usable.
        """
        if not self.is_open:
            return
        outgoing = self._outgoing
        start = len(outgoing)
        outgoing += b"\0\0\0\0"
        try:
            _encoder.encode_into(frame, outgoing, start + 4)
            size = len(outgoing) - start - 4
            if size > MAX_FRAME:
                raise FrameTooLong(f"a frame of {size} bytes is over the limit of {MAX_FRAME}")
        except BaseException:
            del outgoing[start:]
            raise
        outgoing[start : start + 4] = size.to_bytes(4, "big")
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        transport = self._transport
        if transport is None or not self._outgoing:
            return
        if not transport.is_closing():
            self.writes += 1
        transport.write(bytes(self._outgoing))
        self._outgoing.clear()
        if self.is_open and transport.get_write_buffer_size() > self._max_write_buffer:
            self.abort("slow reader")

    def close(self, reason: str) -> None:
        """Write what is queued, then close; a peer that does not read gets `linger` seconds for it."""
        if not self.is_open:
            return
        self._reason = self._reason or reason
        self._flush()
        self.is_open = False
        if self._transport is not None:
            self._transport.close()
            self._lingering = self._loop.call_later(self._linger, self._transport.abort)

    def abort(self, reason: str) -> None:
        """Close at once; what is queued is dropped."""
        self._reason = self._reason or reason
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._transport = None
        if self._lingering is not None:
            self._lingering.cancel()
        self._incoming.clear()
        self._outgoing.clear()
        self._handler.closed(self, self._reason or (repr(exc) if exc else "closed by peer"))


async def connect(
    host: str,
    port: int,
    frames: Any,
    handler: Handler,
    *,
    tls: ssl.SSLContext | None = None,
    max_frame: int = MAX_FRAME,
    max_write_buffer: int = MAX_WRITE_BUFFER,
) -> Connection:
    """Open a connection. tls: how the host is checked. Raises `OSError` when nobody answers, or not that host."""
    loop = asyncio.get_running_loop()

    def make() -> Connection:
        return Connection(frames, handler, max_frame=max_frame, max_write_buffer=max_write_buffer)

    patience = HANDSHAKE_SECONDS if tls is not None else None
    _, connection = await loop.create_connection(make, host, port, ssl=tls, ssl_handshake_timeout=patience)
    return connection


async def listen(
    host: str,
    port: int,
    frames: Any,
    handler: Callable[[], Handler],
    *,
    tls: ssl.SSLContext | None = None,
    handshakes: Handshakes | None = None,
    max_frame: int = MAX_FRAME,
    max_write_buffer: int = MAX_WRITE_BUFFER,
    last_words: Callable[[str], msgspec.Struct] | None = None,
    linger: float = LINGER,
) -> asyncio.Server | TlsServer:
    """Serve connections, each with a handler of its own. Raises `OSError` when the port is taken.

    handshakes: of `tls`; without it they are counted as those of a listener `frames`.
    """
    loop = asyncio.get_running_loop()

    def make() -> Connection:
        return Connection(
            frames,
            handler(),
            max_frame=max_frame,
            max_write_buffer=max_write_buffer,
            last_words=last_words,
            linger=linger,
        )

    if tls is None:
        return await loop.create_server(make, host, port)
    counted = handshakes or Handshakes("frames")
    server = TlsServer([tls_server.listen(host, port)], make, context=tls, handshakes=counted)
    server.start()
    return server
