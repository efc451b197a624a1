"""WebSockets of the web server, with what their application needs: reading that stops, and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from network.connections.pace import Pace
from tidings.wire.connection import FULL, MAX_FRAME, PACED, STALL, TURNING, WRITING
from tidings.wire.small_reads import SmallReads
from tidings.wire.unfinished import Unfinished

# What the application finds this protocol under, in the extensions of its scope.
EXTENSION = "tidings.websocket"
# What the application is given for text that is not UTF-8: no frame begins with it.
NOT_UTF8 = "\N{REPLACEMENT CHARACTER}"
# Bytes that are parsed in one turn of the loop: 2,700 of the smallest messages; before a login, forty.
SLICE, FIRST_SLICE = 16 * 1024, 256
# Tokens a second and at once for control frames before a login.
FIRST_PACE = 10.0, 50.0
# Bytes that wait for their turn, at most: one read of the loop's.
MAX_UNPARSED = 1024 * 1024
# Bytes that a fragment counts for beside its own, and how many of them cost as much as a control frame.
_FRAGMENT = 64
_FRAGMENTS = 10
# Why nothing is read, beside the reasons of a framed connection.
BACKLOG = 16  # the application has much to write that it cannot
_QUEUED = 32  # the application has a message that it has not taken
_CONTROL = 64  # control frames came too fast
_OURS = WRITING | PACED | FULL | BACKLOG | _CONTROL


class CuttableProtocol(WebSocketsSansIOProtocol):
    """uvicorn's own, except that

    - the application can stop reading, cut off a peer, and set the size of a message;
    - it hears of text that is not UTF-8, where uvicorn logs a traceback and closes without a word;
    - what has come is parsed in slices, one in a turn of the loop, and only while the application takes the messages;
    - nothing is read while the peer does not read, and control frames and fragments have their pace;
    - messages that are not here in full are counted, and have their time.
    """

    def __init__(self, *args: Any, unfinished: Unfinished, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unfinished = unfinished
        self._pauses = 0
        self._unparsed = bytearray()
        self._slice = FIRST_SLICE
        self._pace = Pace(*FIRST_PACE)
        self._is_paced = False
        self._fragments = 0
        self._is_kept = self._is_new = False
        # Bytes that waited for the peer when that was last looked at, and since when there was no fewer.
        self._buffered = 0
        self._stalled_at = 0.0
        # Set while the application may take messages.
        self.readable = asyncio.Event()
        self.readable.set()
        # For the application to call when somebody has logged in for the first time: what the connection took of the
        # bounds of strangers over HTTP is given back.
        self.on_login: Callable[[], None] = lambda: None

    # For the application.

    @property
    def is_held(self) -> bool:
        """Is it we who do not read on?"""
        return self._pauses & _OURS != 0

    def pause(self, why: int) -> None:
        """Read nothing until `resume` for the same reason."""
        if not self._pauses and not self.transport.is_closing():
            self.transport.pause_reading()
        self._pauses |= why
        if why & _OURS:
            self.readable.clear()

    def resume(self, why: int) -> None:
        """Go on when there is no other reason to wait."""
        if not self._pauses & why:
            return
        self._pauses &= ~why
        if not self._pauses & _OURS:
            self.readable.set()
        if self._pauses:
            return
        if self._unparsed:
            # What is here already comes first.
            self._parse()
        if not self._pauses and not self.transport.is_closing():
            self.transport.resume_reading()

    def release(self) -> None:
        """Read whatever comes: the peer's goodbye is waited for."""
        self.resume(self._pauses)

    def limit(self, *, frame: int, unread: int) -> None:
        """Bytes of a message that may come from here on, and bytes unread by the peer at which nothing more is read."""
        self.conn.max_message_size = frame
        self.transport.set_write_buffer_limits(high=min(unread, 64 * 1024))
        if frame == MAX_FRAME:
            self._slice, self._pace = SLICE, Pace()
            self.transport.set_protocol(self)
        else:
            self.transport.set_protocol(SmallReads(self))

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()

    def check_reader(self, now: float) -> None:
        """Cut a peer that has not read anything for `STALL` seconds while much waits for it."""
        if self.writable.is_set() or (self.transport.is_closing() and not self._buffered):
            self._buffered = 0
            return
        buffered = self.transport.get_write_buffer_size()
        if not self._buffered or buffered < self._buffered:
            self._stalled_at = now
        self._buffered = buffered
        if now - self._stalled_at > STALL:
            self.transport.abort()

    # For what counts unfinished messages.

    def give_up(self, detail: str) -> None:
        """Close it over a message that does not come in full."""
        self._is_kept = False
        self.frames = []
        self.transport.abort()

    # From the transport.

    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        if len(self._unparsed) > MAX_UNPARSED:
            self.transport.abort()
        elif not self._pauses:
            self._parse()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.pause(WRITING)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.resume(WRITING)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unparsed.clear()
        self._pauses = 0
        self.readable.set()
        if self._is_kept:
            self._keep(0)

    # Within uvicorn's.

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        scope: Any = getattr(self, "scope", None)
        if scope is not None:
            scope["extensions"][EXTENSION] = self

    def handle_cont(self, event: Any) -> None:
        self._fragments += 1
        self._charge(1 / _FRAGMENTS)
        super().handle_cont(event)

    def handle_ping(self) -> None:
        self._charge(1.0)
        super().handle_ping()

    def handle_pong(self, event: Any) -> None:
        self._charge(1.0)
        super().handle_pong(event)

    def send_receive_event_to_app(self) -> None:
        self._fragments, self._is_new = 0, True
        if self.curr_msg_data_type == "text":
            data = b"".join(self.frames)
            self.frames = [data if _is_utf8(data) else NOT_UTF8.encode()]
        if not self.close_sent:
            self.pause(_QUEUED)
        super().send_receive_event_to_app()

    async def receive(self) -> Any:
        message = await self.queue.get()
        if self.queue.empty():
            self.read_paused = False
            self.resume(_QUEUED)
        return message

    def _parse(self) -> None:
        data = bytes(self._unparsed[: self._slice])
        del self._unparsed[: self._slice]
        super().data_received(data)
        kept = len(self.conn.reader.buffer) + sum(map(len, self.frames)) + _FRAGMENT * self._fragments
        if kept or self._is_kept:
            self._keep(kept)
        if not self._pauses and self._unparsed:
            self.pause(TURNING)
            self.loop.call_soon(self.resume, TURNING)

    def _keep(self, size: int) -> None:
        self._is_kept = size > 0
        self._unfinished.keep(self, size, self.loop.time(), is_new=self._is_new)
        self._is_new = False

    def _charge(self, cost: float) -> None:
        wait = self._pace.take(self.loop.time(), cost)
        if wait > 0 and not self._is_paced:
            self._is_paced = True
            self.pause(_CONTROL)
            self.loop.call_later(wait, self._paced)

    def _paced(self) -> None:
        self._is_paced = False
        self.resume(_CONTROL)


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
