"""WebSocket after its handshake; each message carries one frame."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter, WebSocket

from network import errors, http
from network.connections import websocket_frames
from network.connections.connections import Connections
from network.connections.websocket_frames import Head, Violation
from network.connections.websocket_handshake import EXTENSION, WebSocketHandshake
from tidings.aio.token_buckets import RateLimit
from tidings.wire import device
from tidings.wire.connection import HIGH_WATER, MAX_FRAME, WRITING, YIELDING, Connection, FrameTooLong, Handler
from tidings.wire.decoding import UNREADABLE
from tidings.wire.small_reads import SmallReads
from tidings.wire.unfinished import IncompleteFrames

log = logging.getLogger(__name__)

# Close grace period in seconds: time that a peer has to read the last frames before the connection is aborted.
CLOSE_GRACE = 5.0
CLOSE_CODES = {
    device.BAD_FRAME: websocket_frames.INCONSISTENT,
    device.SHUTDOWN: websocket_frames.RESTART,
    device.IDLE: websocket_frames.NORMAL,
}
# Frames of maximum size that are read after our `CLOSE`; the peer's `CLOSE` may be behind them.
BEHIND = 4
# Seconds between two pings, and seconds within which the peer must respond.
PING = 20.0
# Rates of control frames before a login, and after it.
BEFORE_LOGIN, AFTER_LOGIN = RateLimit(0.1, 50.0), RateLimit(0.01, 1000.0)
# Pause reason in addition to those of `tidings.wire.connection`: control frames came too fast.
CONTROL = 64
# Bytes that a fragment counts for in addition to its payload, and fragments that cost as much as one control frame.
_FRAGMENT = 64
_FRAGMENTS = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Codec:
    """Encoding of a subprotocol."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    opcode: int  # Opcode of messages that are sent.
    is_strict: bool  # Whether text messages are refused.


SUBPROTOCOLS = {
    "tidings.v1.json": Codec(
        msgspec.json.Encoder().encode,
        msgspec.json.Decoder(device.FromDevice).decode,
        websocket_frames.TEXT,
        is_strict=False,
    ),
    "tidings.v1.msgpack": Codec(
        msgspec.msgpack.Encoder().encode,
        msgspec.msgpack.Decoder(device.FromDevice).decode,
        websocket_frames.BINARY,
        is_strict=True,
    ),
}


class WebSocketConnection(Connection):
    """Server's side of a WebSocket.

    Data that the peer does not read waits here, behind the data in the transport. When both together exceed
    `max_write_buffer`, the data here is dropped, the reason is sent last, and the connection closes. Dropped deliveries
    are repeated after the next login. Control frames and fragments are rate-limited.
    """

    __slots__ = (
        "_behind",
        "_codec",
        "_control_full_at",
        "_control_rate",
        "_host",
        "_is_pinged",
        "_opcode",
        "_parts",
        "_parts_size",
        "_pinged_at",
    )

    def __init__(
        self, codec: Codec, handler: Handler, host: str, *, max_write_buffer: int, unfinished: IncompleteFrames
    ) -> None:
        """host: address of the client, also behind a trusted proxy."""
        super().__init__(
            device.FromDevice, handler, max_write_buffer=max_write_buffer, linger=CLOSE_GRACE, unfinished=unfinished
        )
        self._codec = codec
        self._host = host
        # Rate of control frames, and its state in event-loop time.
        self._control_rate = BEFORE_LOGIN
        self._control_full_at = 0.0
        # Bytes received after our `CLOSE`.
        self._behind = 0
        # Fragmented message whose last fragment has not been received; `_parts` is `None` when there is none.
        self._opcode = 0
        self._parts: list[bytes] | None = None
        self._parts_size = 0
        # Loop time of the last ping, and whether its pong is outstanding.
        self._pinged_at = 0.0
        self._is_pinged = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pinged_at = asyncio.get_running_loop().time()
        super().connection_made(transport)

    @property
    def host(self) -> str:
        return self._host

    # Incoming data.

    def _source(self) -> asyncio.Transport | None:
        """Return the transport while incoming data is processed, until the peer's `CLOSE`; `None` afterwards."""
        transport = self._transport
        return transport if transport is not None and not transport.is_closing() else None

    def data_received(self, data: bytes) -> None:
        if not self.is_open and self._is_flood(len(data)):
            return
        if self.is_open or self._source() is not None:
            self._incoming += data
            self._read()

    def _is_flood(self, size: int) -> bool:
        """Return whether the peer has sent too much after our `CLOSE`; if so, abort instead of reading on."""
        self._behind += size
        is_flood = self._behind > BEHIND * self.max_frame
        if is_flood and self._transport is not None:
            self._transport.abort()
        return is_flood

    def _read(self) -> None:
        incoming = self._incoming
        position, left, has_ended = 0, self._turn, False
        view = memoryview(incoming)
        try:
            while not self._pauses:
                head = websocket_frames.read_head(view, position, limit=self.max_frame)
                if head is None or head.end > len(view):
                    break
                if not left:
                    self.pause(YIELDING)
                    self._loop.call_soon(self._read_on)
                    break
                left -= 1
                position = head.end
                has_ended |= self._take(head, websocket_frames.unmask(view[head.start : head.end], head.key))
                if not self.is_open and self._source() is None:
                    break
        except Violation as error:
            self._violated(error)
            position = len(incoming)
        except Exception as error:
            log.exception("connection.handler_failed", extra={"peer": self.peer})
            self._reason = f"handler failed: {error!r}"
            self._send_close(websocket_frames.INTERNAL_ERROR, "")
        finally:
            view.release()
        del incoming[:position]
        self._count_unfinished(is_new=has_ended)

    def _take(self, head: Head, payload: bytes) -> bool:
        """Handle one frame; return whether it completed a message."""
        if head.opcode >= websocket_frames.CLOSE:
            self._control(head.opcode, payload)
            return False
        if head.opcode == websocket_frames.CONTINUATION:
            if self._parts is None:
                raise Violation(websocket_frames.PROTOCOL_ERROR, "a continuation frame without a message")
        elif self._parts is not None:
            raise Violation(websocket_frames.PROTOCOL_ERROR, "a message inside another message")
        else:
            self._opcode = head.opcode
        if head.is_last and self._parts is None:
            self._message(payload)
            return True
        if self._parts is None:
            self._parts, self._parts_size = [], 0
        self._parts.append(payload)
        self._parts_size += len(payload)
        self._charge(1 / _FRAGMENTS)
        if self._parts_size > self.max_frame:
            raise Violation(websocket_frames.TOO_BIG, f"over {self.max_frame} bytes")
        if not head.is_last:
            return False
        whole, self._parts = b"".join(self._parts), None
        self._message(whole)
        return True

    def _message(self, data: bytes) -> None:
        if not self.is_open:
            return
        self.last_received = self._loop.time()
        is_text = self._opcode == websocket_frames.TEXT
        try:
            if is_text and not data.isascii():
                data.decode()
            if self._codec.is_strict and is_text:
                raise TypeError("a text frame where binary is required")
            frame = self._codec.decode(data)
        except UnicodeDecodeError:
            self._bad_frame("text that is not UTF-8")
        except (*UNREADABLE, TypeError) as error:
            self._bad_frame(str(error))
        else:
            self.handler.received(self, frame)

    def _bad_frame(self, why: str) -> None:
        self.send(device.Closing(reason=device.BAD_FRAME, detail=f"bad frame: {why}"))
        self.close(device.BAD_FRAME)

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == websocket_frames.CLOSE:
            self._peer_closes(payload)
            return
        self._charge()
        if opcode == websocket_frames.PONG:
            self._is_pinged = False
        elif self.is_open:
            self._write(websocket_frames.PONG, payload)

    def _charge(self, cost: float = 1.0) -> None:
        rate, now = self._control_rate, self._loop.time()
        self._control_full_at = rate.consume(self._control_full_at, now, cost)
        self.pause_for(CONTROL, rate.wait(self._control_full_at, now, 0))

    def _count_unfinished(self, *, is_new: bool) -> None:
        assert self.unfinished is not None
        kept = len(self._incoming)
        if self._parts is not None:
            kept += self._parts_size + _FRAGMENT * len(self._parts)
        if self._transport is not None and (kept or self._is_kept):
            self._is_kept = kept > 0
            self.unfinished.keep(self, kept, self._loop.time(), is_new=is_new)

    def limit(self, *, frame: int = MAX_FRAME, unread: int = HIGH_WATER) -> None:
        super().limit(frame=frame, unread=unread)
        if self._transport is None:
            return
        if frame == MAX_FRAME:
            self._control_rate, self._control_full_at = AFTER_LOGIN, 0.0
        else:
            self._transport.set_protocol(SmallReads(self))

    # Outgoing data.

    def send(self, frame: msgspec.Struct) -> None:
        if not self.is_open:
            return
        data = self._codec.encode(frame)
        if len(data) > MAX_FRAME:
            raise FrameTooLong(f"a frame of {len(data)} bytes is over the limit of {MAX_FRAME}")
        self._write(self._codec.opcode, data)

    def _write(self, opcode: int, payload: bytes) -> None:
        self._outgoing += websocket_frames.head_of(opcode, len(payload))
        self._outgoing += payload
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        transport = self._transport
        if transport is None:
            return
        if transport.get_write_buffer_size() + len(self._outgoing) > self.max_write_buffer and self.is_open:
            self._outgoing.clear()
            self.send(device.Closing(reason=device.SLOW_READER))
            self.close(device.SLOW_READER)
        elif not self._pauses & WRITING:
            self._flush_all(transport)

    def _flush_all(self, transport: asyncio.Transport) -> None:
        if self._outgoing:
            self._written += len(self._outgoing)
            transport.write(bytes(self._outgoing))
            self._outgoing.clear()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._flush_all(self._transport)
            if self._transport.get_write_buffer_size() > self._high_water:
                # The transport calls again when this has been read.
                self._taken_at = self._loop.time()
                return
        super().resume_writing()

    def ping(self, now: float) -> None:
        if not self.is_open or now - self._pinged_at < PING:
            return
        if not self._is_pinged:
            self._pinged_at, self._is_pinged = now, True
            self._write(websocket_frames.PING, b"")
        elif self.is_held or self.last_received > self._pinged_at:
            # Its pong may be in the data that has not been read yet.
            self._pinged_at = now
        else:
            self.abort("no answer to a ping")

    # The end.

    def give_up(self, detail: str) -> None:
        """Abort because a message is not completed."""
        self._is_kept = False
        self._parts = None
        self.abort(detail)

    def _violated(self, violation: Violation) -> None:
        if self.is_open:
            self._reason = self._reason or str(violation)
            self._send_close(violation.code, "")
        self._end()

    def close(self, reason: str) -> None:
        """Write queued frames, then close; a peer that does not read gets `linger` seconds for them."""
        if not self.is_open:
            return
        self._reason = self._reason or reason
        self._send_close(CLOSE_CODES.get(self._reason, websocket_frames.POLICY_VIOLATION), self._reason)

    def _send_close(self, code: int, reason: str) -> None:
        """Send a `CLOSE` and read until the peer's `CLOSE`; otherwise a TCP reset would lose ours."""
        self._last(websocket_frames.closing(code, reason))
        if self._transport is not None:
            # The peer's `CLOSE` may have been received already, behind data whose reading was paused for a reason that
            # no longer counts.
            self._pauses = YIELDING
            self._loop.call_soon(self._read_on)

    def _last(self, data: bytes) -> None:
        self._outgoing += data
        self.is_open = False
        if self._transport is not None:
            self._flush_all(self._transport)
            if self._lingering is None:
                self._lingering = self._loop.call_later(self.linger, self._transport.abort)

    def _peer_closes(self, payload: bytes) -> None:
        if self.is_open:
            self._last(websocket_frames.closing(websocket_frames.response_to_closing(payload), ""))
        self._end()

    def _end(self) -> None:
        """Stop reading, and close when the peer has read the last bytes written."""
        source = self._source()
        if source is not None:
            source.close()


# Tokens that a WebSocket consumes: its request costs more than a TCP connection.
UPGRADE = 5.0


def make_routes(connections: Connections, *, write_buffer: int) -> APIRouter:
    """Return the endpoint of live connections. Once a connection is open, the call ends and the web server no longer
    owns it.
    """
    routes = APIRouter()

    @routes.websocket("/v1/connect")
    async def connect(websocket: WebSocket) -> None:
        offered = websocket.scope.get("subprotocols", [])
        name = next((name for name in offered if name in SUBPROTOCOLS), None)
        if name is None:
            detail = f"offer one of these subprotocols: {', '.join(SUBPROTOCOLS)}"
            await websocket.send_denial_response(http.error_response(errors.BadRequest(detail)))
            return
        peer = websocket.client.host if websocket.client is not None else ""
        # Some proxies add a second header line instead of extending the first.
        host = connections.client_of(peer, ",".join(websocket.headers.getlist("x-forwarded-for")))
        slot = connections.take_slot(host, UPGRADE)
        if slot is None:
            refusal = errors.TooManyUnauthenticated("too many connections without a login", retry_after=1)
            await websocket.send_denial_response(http.error_response(refusal))
            return
        handshake: WebSocketHandshake = websocket.scope["extensions"][EXTENSION]
        slot.on_login = handshake.on_login
        opened = False
        try:
            await websocket.accept(subprotocol=name)
            connection = WebSocketConnection(
                SUBPROTOCOLS[name],
                connections.session(slot),
                host,
                max_write_buffer=write_buffer,
                unfinished=connections.unfinished,
            )
            opened = handshake.hand_over(connection)
        finally:
            if not opened:
                slot.release()

    return routes
