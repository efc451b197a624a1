"""A TCP connection that carries frames: 4 bytes of length (big-endian), then one MessagePack map.

Writes of one turn of the event loop go out as one segment. The write buffer is bounded: a peer that does not read is
disconnected, because to wait for it here would let one slow reader hold up everybody else. Who serves connections also
stops reading from whoever does not read, and takes turns between them.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections.abc import Callable
from typing import Any, Protocol, cast

import msgspec

from tidings.runtime import socket_server
from tidings.runtime.paced_server import PacedServer
from tidings.runtime.socket_server import SocketServer
from tidings.runtime.tls import HANDSHAKE_SECONDS
from tidings.runtime.tls_server import Handshakes, TlsServer
from tidings.wire.decoding import UNREADABLE
from tidings.wire.unfinished import Unfinished

log = logging.getLogger(__name__)

MAX_FRAME = 4 * 1024 * 1024
MAX_WRITE_BUFFER = 16 * 1024 * 1024
# Seconds that a closed connection may take to write what is queued.
LINGER = 5.0
# Seconds without a byte being read by a peer for which much is waiting, then a served connection is cut.
STALL = 30.0
# Bytes waiting for a peer from which on nothing more is read from it.
HIGH_WATER = 1024 * 1024
# Frames of one connection that is served in a turn of the loop; then it is the others' turn. Elsewhere all that came.
TURN, EVERYTHING = 512, 2**62

# Why a connection is not read from: reasons that add up.
WRITING = 1  # the peer does not read
TURNING = 2  # it is the turn of others
PACED = 4  # the time for its next frame has not come
FULL = 8  # as much of what it sent is under way as may be

_encoder = msgspec.msgpack.Encoder()


@functools.cache
def _decoder_of(frames: Any) -> msgspec.msgpack.Decoder[Any]:
    """One for all connections that take the same frames: it has no state."""
    return msgspec.msgpack.Decoder(frames)


def framed(frame: msgspec.Struct) -> bytes:
    """One frame with its length before it."""
    body = _encoder.encode(frame)
    return len(body).to_bytes(4, "big") + body


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
    turn: frames that are taken in one turn of the loop, if not as many as is usual.
    unfinished: what is kept of unfinished frames of all connections that are served here; with it nothing is read
        while the peer does not read. Only one side may do that, or both could wait for each other.
    """

    # There may be a hundred thousand of them, most of them idle.
    __slots__ = (
        "_address",
        "_decoder",
        "_flush_scheduled",
        "_handler",
        "_high_water",
        "_incoming",
        "_is_kept",
        "_last_words",
        "_linger",
        "_lingering",
        "_loop",
        "_max_frame",
        "_max_write_buffer",
        "_outgoing",
        "_pauses",
        "_reason",
        "_taken",
        "_taken_at",
        "_transport",
        "_turn",
        "_unfinished",
        "_written",
        "is_open",
        "last_received",
        "writes",
    )

    def __init__(
        self,
        frames: Any,
        handler: Handler,
        *,
        max_frame: int = MAX_FRAME,
        max_write_buffer: int = MAX_WRITE_BUFFER,
        last_words: Callable[[str], msgspec.Struct] | None = None,
        linger: float = LINGER,
        turn: int | None = None,
        unfinished: Unfinished | None = None,
    ) -> None:
        self._decoder = _decoder_of(frames)
        self._handler = handler
        self._max_frame = max_frame
        self._max_write_buffer = max_write_buffer
        self._last_words = last_words
        self._linger = linger
        self._unfinished = unfinished
        self._turn = turn or (TURN if unfinished is not None else EVERYTHING)
        self._pauses = 0
        self._is_kept = False
        # Bytes given to the transport, and of these what had left it when that was last looked at.
        self._written = 0
        self._taken = 0
        self._taken_at = 0.0
        self._high_water = HIGH_WATER
        self._transport: asyncio.Transport | None = None
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._flush_scheduled = False
        self._reason = ""
        self._lingering: asyncio.TimerHandle | None = None
        self._address: Any = None
        self.is_open = False
        self.last_received = 0.0
        # Counts the writes: what was queued before one is, after it, on its way to the peer.
        self.writes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of `asyncio.Transport` on uvloop.
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self.last_received = self._loop.time()
        self._address = transport.get_extra_info("peername")
        self.is_open = True
        if self._unfinished is not None:
            self._transport.set_write_buffer_limits(high=self._high_water)
        self._handler.opened(self)

    @property
    def peer(self) -> str:
        """Address of the other side, for logs."""
        return str(self._address)

    @property
    def host(self) -> str:
        return str(self._address[0]) if isinstance(self._address, tuple) else ""

    def data_received(self, data: bytes) -> None:
        self.last_received = self._loop.time()
        self._incoming += data
        self._read()

    def _read(self) -> None:
        incoming = self._incoming
        position, end = 0, len(incoming)
        left = self._turn
        view = memoryview(incoming)
        try:
            while end - position >= 4 and not self._pauses:
                size = int.from_bytes(view[position : position + 4], "big")
                if size > self._max_frame:
                    self._refuse(f"a frame of {size} bytes is over the limit of {self._max_frame}")
                    return
                if end - position - 4 < size:
                    break
                if not left:
                    self.pause(TURNING)
                    self._loop.call_soon(self._read_on)
                    break
                left -= 1
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
            if not self.is_open:
                incoming.clear()
        if position:
            del incoming[:position]
        if self._unfinished is not None and (incoming or self._is_kept):
            self._is_kept = bool(incoming)
            self._unfinished.keep(self, len(incoming), self._loop.time(), is_new=position > 0)

    # What is read, and when.

    @property
    def is_held(self) -> bool:
        """Is it we who do not read on?"""
        return self._pauses != 0

    def _source(self) -> asyncio.Transport | None:
        """The transport, while what it brings is looked at."""
        return self._transport if self.is_open else None

    def pause(self, why: int) -> None:
        """Read nothing until `resume` for the same reason; frames that are here already wait."""
        source = self._source()
        if not self._pauses and source is not None:
            source.pause_reading()
        self._pauses |= why

    def resume(self, why: int) -> None:
        """Go on when there is no other reason to wait."""
        if not self._pauses & why:
            return
        self._pauses &= ~why
        source = self._source()
        if not self._pauses and source is not None:
            self.last_received = self._loop.time()
            if self._incoming:
                # What is here comes before what is not.
                self._pauses = TURNING
                self._loop.call_soon(self._read_on)
            else:
                source.resume_reading()

    def _read_on(self) -> None:
        self._pauses &= ~TURNING
        if not self._pauses and self._source() is not None:
            self._read()
        source = self._source()
        if not self._pauses and source is not None:
            source.resume_reading()

    def limit(self, *, frame: int, unread: int) -> None:
        """Bytes of a frame that may come from here on, and bytes unread by the peer at which no more is read."""
        self._max_frame = frame
        self._high_water = unread
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=unread)
            if frame == MAX_FRAME:
                self._transport.set_protocol(self)

    def give_up(self, detail: str) -> None:
        """Close it over a frame that does not come in full."""
        self._is_kept = False
        self._refuse(detail)
        self._incoming.clear()

    def pause_writing(self) -> None:
        """From the transport: much waits for the peer."""
        self._taken_at = self._loop.time()
        if self._unfinished is not None:
            self.pause(WRITING)

    def resume_writing(self) -> None:
        """From the transport: the peer has read most of it."""
        self._taken_at = 0.0
        self.resume(WRITING)

    def check_reader(self, now: float, seconds: float = STALL) -> None:
        """Cut a peer that has not read a byte for so long while much waits for it. Call it about once a second."""
        if not self._taken_at or self._transport is None:
            return
        taken = self._written - self._transport.get_write_buffer_size()
        if taken != self._taken:
            self._taken, self._taken_at = taken, now
        elif now - self._taken_at > seconds:
            self.abort("it does not read")

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
        self._written += len(self._outgoing)
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
        if self._unfinished is not None and self._is_kept:
            self._is_kept = False
            self._unfinished.keep(self, 0, self._loop.time(), is_new=True)
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
    turn: int | None = None,
) -> Connection:
    """Open a connection. tls: how the host is checked. Raises `OSError` when nobody answers, or not that host."""
    loop = asyncio.get_running_loop()

    def make() -> Connection:
        return Connection(frames, handler, max_frame=max_frame, max_write_buffer=max_write_buffer, turn=turn)

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
    rate: float = 0.0,
    burst: float = 1.0,
    max_frame: int = MAX_FRAME,
    max_write_buffer: int = MAX_WRITE_BUFFER,
    last_words: Callable[[str], msgspec.Struct] | None = None,
    linger: float = LINGER,
    unfinished: Unfinished | None = None,
) -> asyncio.Server | SocketServer:
    """Serve connections, each with a handler of its own. Raises `OSError` when the port is taken.

    handshakes: of `tls`; without it they are counted as those of a listener `frames`.
    rate: connections a second without `tls`, 0 is unlimited, and burst: at once.
    """

    def make() -> Connection:
        return Connection(
            frames,
            handler(),
            max_frame=max_frame,
            max_write_buffer=max_write_buffer,
            last_words=last_words,
            linger=linger,
            unfinished=unfinished,
        )

    if tls is None and not rate:
        return await asyncio.get_running_loop().create_server(make, host, port)
    listening = socket_server.listen(host, port)
    server: SocketServer
    if tls is None:
        server = PacedServer(listening, make, rate=rate, burst=burst)
    else:
        server = TlsServer(listening, make, context=tls, handshakes=handshakes or Handshakes("frames"))
    server.start()
    return server
