"""TCP connection that carries frames: 4 bytes of length (big-endian), then one MessagePack map.

All frames of one event-loop iteration are written as one segment. The write buffer is bounded: a peer that does not
read is disconnected, because waiting for it would let one slow reader delay all others. Served connections are also not
read from while their peer does not read, and are read in alternation.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import ssl
from collections.abc import Callable
from typing import Any, Protocol, cast

import msgspec

from tidings.net import socket_server
from tidings.net.rate_limited_server import RateLimitedServer
from tidings.net.socket_server import SocketServer
from tidings.net.tls import HANDSHAKE_SECONDS
from tidings.net.tls_server import Handshakes, TlsServer
from tidings.wire.decoding import UNREADABLE
from tidings.wire.unfinished import IncompleteFrames

log = logging.getLogger(__name__)

MAX_FRAME = 4 * 1024 * 1024  # bytes
MAX_WRITE_BUFFER = 16 * 1024 * 1024  # bytes
LINGER = 5.0  # seconds that a closed connection may take to write queued data
# Seconds without a byte read by a peer with a full write buffer, after which a served connection is aborted.
STALL = 30.0
STALL_CHECK = 1.0  # seconds between two checks whether it has read
# Unread bytes for a peer above which nothing more is read from it.
HIGH_WATER = 1024 * 1024
# Frames per event-loop iteration: of a served connection, and of all others (unlimited).
FRAMES_PER_ITERATION, EVERYTHING = 512, 2**62

# Reasons for pausing reads, combined as bits.
WRITING = 1  # the peer does not read
YIELDING = 2  # the other connections are served first
PACED = 4  # the rate limit delays its next frame
FULL = 8  # too much of what it sent is being processed

_encoder = msgspec.msgpack.Encoder()


@functools.cache
def _decoder_of(frames: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return the decoder of these frame types. Decoders have no state, so all connections share one."""
    return msgspec.msgpack.Decoder(frames)


def framed(frame: msgspec.Struct) -> bytes:
    """Return one frame with its length in front."""
    body = _encoder.encode(frame)
    return len(body).to_bytes(4, "big") + body


class Disconnected(Exception):
    """The connection is lost. Requests in flight may or may not have been carried out."""


class NotSent(Disconnected):
    """The connection was lost before the frame was written: the peer has not received it."""


class FrameTooLong(ValueError):
    """The peer would close the connection over a frame this long. It was not sent: send less."""


class Handler(Protocol):
    """Owner of a connection. All methods are called on the event loop and must not block."""

    def opened(self, connection: Connection) -> None:
        """Called when the connection is open; frames can be sent from here on."""

    def received(self, connection: Connection, frame: Any) -> None:
        """Called for each frame. An exception closes the connection."""

    def closed(self, connection: Connection, reason: str) -> None:
        """Called when the connection is closed, as the last call."""


# Slots, because a process may have 100,000 connections, most of them idle.
@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Connection(asyncio.Protocol):
    """One side of a framed connection."""

    frames: dataclasses.InitVar[Any]  # union of the frame types that may arrive
    handler: Handler
    _: dataclasses.KW_ONLY
    max_frame: int = MAX_FRAME  # longest accepted frame, bytes
    max_write_buffer: int = MAX_WRITE_BUFFER  # unsent bytes above which the connection is aborted
    # Makes the frame that reports an invalid frame to the peer before the connection is closed.
    closing_frame: Callable[[str], msgspec.Struct] | None = None
    linger: float = LINGER  # time that a closed connection may take to write queued data, seconds
    turn: dataclasses.InitVar[int | None] = None  # frames handled per event-loop iteration; None for the default
    # Tracker of incomplete frames of all served connections. With it, nothing is read while the peer does not read;
    # only one side may do so, or both could wait for each other.
    unfinished: IncompleteFrames | None = None
    is_open: bool = dataclasses.field(default=False, init=False)
    last_received: float = dataclasses.field(default=0.0, init=False)
    # Number of writes. A frame queued before a write has been passed to the transport after it.
    writes: int = dataclasses.field(default=0, init=False)
    _decoder: msgspec.msgpack.Decoder[Any] = dataclasses.field(init=False)
    _turn: int = dataclasses.field(init=False)
    _loop: asyncio.AbstractEventLoop = dataclasses.field(init=False)
    _transport: asyncio.Transport | None = dataclasses.field(default=None, init=False)
    _address: Any = dataclasses.field(default=None, init=False)
    _pauses: int = dataclasses.field(default=0, init=False)
    _is_kept: bool = dataclasses.field(default=False, init=False)
    # Bytes given to the transport; of these, the bytes that had left it at the last check, and the event-loop time of
    # that.
    _written: int = dataclasses.field(default=0, init=False)
    _taken: int = dataclasses.field(default=0, init=False)
    _taken_at: float = dataclasses.field(default=0.0, init=False)
    _stall_check: asyncio.TimerHandle | None = dataclasses.field(default=None, init=False)
    _high_water: int = dataclasses.field(default=HIGH_WATER, init=False)
    _incoming: bytearray = dataclasses.field(default_factory=bytearray, init=False)
    _outgoing: bytearray = dataclasses.field(default_factory=bytearray, init=False)
    _flush_scheduled: bool = dataclasses.field(default=False, init=False)
    _reason: str = dataclasses.field(default="", init=False)
    _lingering: asyncio.TimerHandle | None = dataclasses.field(default=None, init=False)

    def __post_init__(self, frames: Any, turn: int | None) -> None:
        self._decoder = _decoder_of(frames)
        self._turn = turn or (FRAMES_PER_ITERATION if self.unfinished is not None else EVERYTHING)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an instance of `asyncio.Transport` on uvloop.
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self.last_received = self._loop.time()
        self._address = transport.get_extra_info("peername")
        self.is_open = True
        if self.unfinished is not None:
            self._transport.set_write_buffer_limits(high=self._high_water)
        self.handler.opened(self)

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
                if size > self.max_frame:
                    self._refuse(f"a frame of {size} bytes is over the limit of {self.max_frame}")
                    return
                if end - position - 4 < size:
                    break
                if not left:
                    self.pause(YIELDING)
                    self._loop.call_soon(self._read_on)
                    break
                left -= 1
                try:
                    frame = self._decoder.decode(view[position + 4 : position + 4 + size])
                except UNREADABLE as error:
                    self._refuse(f"bad frame: {error}")
                    return
                position += 4 + size
                self.handler.received(self, frame)
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
        if self.unfinished is not None and (incoming or self._is_kept):
            self._is_kept = bool(incoming)
            self.unfinished.keep(self, len(incoming), self._loop.time(), is_new=position > 0)

    # Pausing and resuming reads.

    @property
    def is_held(self) -> bool:
        """Return whether this side has paused reading."""
        return self._pauses != 0

    def _source(self) -> asyncio.Transport | None:
        """Return the transport while its data is processed; None once the connection is closed."""
        return self._transport if self.is_open else None

    def pause(self, why: int) -> None:
        """Stop reading until `resume` for the same reason. Frames already received wait too."""
        source = self._source()
        if not self._pauses and source is not None:
            source.pause_reading()
        self._pauses |= why

    def resume(self, why: int) -> None:
        """Clear one reason for pausing; read on when none is left."""
        if not self._pauses & why:
            return
        self._pauses &= ~why
        source = self._source()
        if not self._pauses and source is not None:
            self.last_received = self._loop.time()
            if self._incoming:
                # Frames already received come first.
                self._pauses = YIELDING
                self._loop.call_soon(self._read_on)
            else:
                source.resume_reading()

    def pause_for(self, why: int, seconds: float) -> None:
        """Stop reading for a time, for one reason. Without effect while reading is paused for it already."""
        if seconds > 0 and not self._pauses & why:
            self.pause(why)
            self._loop.call_later(seconds, self.resume, why)

    def _read_on(self) -> None:
        self._pauses &= ~YIELDING
        if not self._pauses and self._source() is not None:
            self._read()
        source = self._source()
        if not self._pauses and source is not None:
            source.resume_reading()

    def limit(self, *, frame: int = MAX_FRAME, unread: int = HIGH_WATER) -> None:
        """Change the limits of the connection; without arguments, to those of an authenticated peer.

        frame:  longest accepted frame, bytes
        unread: bytes unread by the peer above which nothing more is read from it
        """
        self.max_frame = frame
        self._high_water = unread
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=unread)
            if frame == MAX_FRAME:
                self._transport.set_protocol(self)

    def give_up(self, detail: str) -> None:
        """Close the connection because the rest of a frame did not arrive."""
        self._is_kept = False
        self._refuse(detail)
        self._incoming.clear()

    def pause_writing(self) -> None:
        """Called by the transport when its write buffer exceeds the high-water mark."""
        self._taken_at = self._loop.time()
        if self.unfinished is not None:
            self.pause(WRITING)
            if self._stall_check is None:
                self._stall_check = self._loop.call_later(STALL_CHECK, self._check_stall)

    def resume_writing(self) -> None:
        """Called by the transport when its write buffer is below the low-water mark."""
        self._taken_at = 0.0
        self.resume(WRITING)

    def check_reader(self, now: float) -> None:
        """Abort the connection if the write buffer is full and the peer has read nothing for `STALL` seconds.

        now: event-loop time, seconds
        """
        if not self._taken_at or self._transport is None:
            return
        taken = self._written - self._transport.get_write_buffer_size()
        if taken != self._taken:
            self._taken, self._taken_at = taken, now
        elif now - self._taken_at > STALL:
            self.abort("it does not read")

    def _check_stall(self) -> None:
        self._stall_check = None
        self.check_reader(self._loop.time())
        if self._taken_at and self._transport is not None:
            self._stall_check = self._loop.call_later(STALL_CHECK, self._check_stall)

    def ping(self, now: float) -> None:
        """Ping the peer if that is due. Peers over TCP ping from their side, so nothing happens here.

        now: event-loop time, seconds
        """

    def _refuse(self, reason: str) -> None:
        if self.closing_frame is not None:
            self.send(self.closing_frame(reason))
        self.close(reason)

    def send(self, frame: msgspec.Struct) -> None:
        """Queue one frame, which is written at the end of this event-loop iteration.

        Does nothing on a closed connection.

        Raises `FrameTooLong` for one over `MAX_FRAME`, whatever this side's own limit; the connection stays usable.
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
        if self.is_open and transport.get_write_buffer_size() > self.max_write_buffer:
            self.abort("slow reader")

    def close(self, reason: str) -> None:
        """Write queued data, then close. After `linger` seconds the rest is dropped."""
        if not self.is_open:
            return
        self._reason = self._reason or reason
        self._flush()
        self.is_open = False
        if self._transport is not None:
            self._transport.close()
            self._lingering = self._loop.call_later(self.linger, self._transport.abort)

    def abort(self, reason: str) -> None:
        """Close at once, and drop queued data."""
        self._reason = self._reason or reason
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._transport = None
        if self._lingering is not None:
            self._lingering.cancel()
        if self._stall_check is not None:
            self._stall_check.cancel()
        self._incoming.clear()
        self._outgoing.clear()
        if self.unfinished is not None and self._is_kept:
            self._is_kept = False
            self.unfinished.keep(self, 0, self._loop.time(), is_new=True)
        self.handler.closed(self, self._reason or (repr(exc) if exc else "closed by peer"))


async def connect(
    host: str,
    port: int,
    frames: Any,
    handler: Handler,
    *,
    tls: ssl.SSLContext | None = None,
    turn: int | None = None,
) -> Connection:
    """Open a connection. Raises `OSError` when the host cannot be reached or does not prove its identity.

    tls: context that verifies the host's certificate; None for plain TCP
    """
    loop = asyncio.get_running_loop()

    def make() -> Connection:
        return Connection(frames, handler, turn=turn)

    handshake_timeout = HANDSHAKE_SECONDS if tls is not None else None
    _, connection = await loop.create_connection(make, host, port, ssl=tls, ssl_handshake_timeout=handshake_timeout)
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
    closing_frame: Callable[[str], msgspec.Struct] | None = None,
    linger: float = LINGER,
    unfinished: IncompleteFrames | None = None,
) -> asyncio.Server | SocketServer:
    """Serve connections, each with its own handler. Raises `OSError` when the port is taken.

    handler:    makes the handler of a connection
    handshakes: limits and metrics of TLS handshakes; None for those of a listener named `frames`
    rate:       connections accepted per second without `tls`; 0 for no limit
    burst:      connections accepted at once without `tls`
    """

    def make() -> Connection:
        return Connection(
            frames,
            handler(),
            max_frame=max_frame,
            max_write_buffer=max_write_buffer,
            closing_frame=closing_frame,
            linger=linger,
            unfinished=unfinished,
        )

    if tls is None and not rate:
        return await asyncio.get_running_loop().create_server(make, host, port)
    listening = socket_server.listen(host, port)
    server: SocketServer
    if tls is None:
        server = RateLimitedServer(listening, make, rate=rate, burst=burst)
    else:
        server = TlsServer(listening, make, context=tls, handshakes=handshakes or Handshakes("frames"))
    server.start()
    return server
