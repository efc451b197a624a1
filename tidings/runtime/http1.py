"""HTTP/1.1 for whoever connects: bounded before anybody looks at a request, and also for clients that ask for HTTP/2.

Java's and others do so with their first request (`Upgrade: h2c`). They stay with HTTP/1.1, which httptools has no word
for: it takes a request that asks for another protocol to end with its head, and its body for the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sized

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Seconds that the head of a request may take to arrive.
HEAD_TIMEOUT = 30.0
# Bytes that may come of a request's line and headers, or after its head without a byte of its body or its end: sizes
# and extensions of chunks, headers after the body. Counted are whole segments (of 256 KiB at most) since the last one
# in which a head or a message ended, or a part of a body was.
MAX_HEAD = 64 * 1024


class _Flow(FlowControl):
    """uvicorn's, but nothing more is read while requests wait for the one before them, which is here in full then."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()


class StayingProtocol(HttpToolsProtocol):
    """uvicorn's, with limits on the size of a request's headers, the time of its head and the requests that wait.

    An upgrade that is not taken up changes nothing of the request. WebSockets are as ever.
    """

    def __init__(self, *args: object, head_timeout: float = HEAD_TIMEOUT, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._head_timeout = head_timeout
        self._replays_head = False
        self._in_head = True
        # Bytes of the segments since the last in which a head, a part of a body or a message ended.
        self._unfinished = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self._head_timer = self.loop.call_later(self._head_timeout, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._unfinished += len(data)
        self._parse(data)
        if self._in_head or self._unfinished or self.cycle is None or self.cycle.response_complete:
            self._await_the_rest()

    def _await_the_rest(self) -> None:
        """Nothing is in progress but what the client has still to send."""
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if self._unfinished > MAX_HEAD:
            self._refuse_size()
        elif self._in_head:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(self._head_timeout, self._head_is_late)
        elif self.cycle.response_complete and self.timeout_keep_alive_task is None:
            # What comes of a request that was answered early is no request.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _refuse_size(self) -> None:
        if self._in_head:
            self.send_400_response(f"the head of the request is over {MAX_HEAD} bytes")
        elif not self.cycle.response_started:
            self.send_400_response(f"the headers after the request's body are over {MAX_HEAD} bytes")
        else:
            self.transport.close()

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.flow.read_paused:
            # It is we who do not read it.
            self._head_timer = self.loop.call_later(self._head_timeout, self._head_is_late)
        elif not self.transport.is_closing():
            self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _parse(self, data: bytes | memoryview) -> None:
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                return
            except httptools.HttpParserUpgrade as asked:
                if self._should_upgrade():
                    self.handle_websocket_upgrade()
                    return
                data = memoryview(data)[asked.args[0] :]
            self._refuse_upgrade()
            if self.transport.is_closing():
                return

    def _refuse_upgrade(self) -> None:
        """Have a parser that knows the same head, but for what asks for another protocol: the body is to come."""
        head = [b"POST / HTTP/1.1\r\n"]
        for name, value in self.headers:
            if name != b"upgrade":
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        self._replays_head = True
        self._parse(b"".join([*head, b"\r\n"]))
        self._replays_head = False

    def on_message_begin(self) -> None:
        if not self._replays_head:
            self._in_head = True
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._replays_head:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._replays_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._replays_head:
            self._in_head = False
            self._unfinished = 0
            self._stop_head_timer()
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished = 0
        # With an upgrade this is only the end of the head.
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # The last of those that waited is in progress, and may wait for its body.
        if self.flow.read_paused and not self.transport.is_closing():
            self.flow.resume_reading()
