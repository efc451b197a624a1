"""HTTP/1.1 also for clients that ask for HTTP/2.

Java's and others do so with their first request (`Upgrade: h2c`). They stay with HTTP/1.1, which httptools has no word
for: it takes a request that asks for another protocol to end with its head, and its body for the next request.
"""

from __future__ import annotations

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class _Known:
    """What is told of a request whose head the protocol knows: all but that head."""

    def __init__(self, protocol: StayingProtocol) -> None:
        self._protocol = protocol
        self.is_over = False
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if self.is_over:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self.is_over:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.is_over:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.is_over:
            self._protocol.on_headers_complete()
        self.is_over = True


class StayingProtocol(HttpToolsProtocol):
    """uvicorn's, but an upgrade that is not taken up changes nothing of the request. WebSockets are as ever."""

    def parse(self, data: bytes | memoryview) -> None:
        """Go on with the parser; the connection may be refused then, or be another protocol's."""
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
                    self.forget()
                    return
                data = memoryview(data)[asked.args[0] :]
            self._refuse_upgrade()
            if self.transport.is_closing():
                return

    def forget(self) -> None:
        """Nothing comes any more. What this protocol has refers to it: both would be there until the collector of
        garbage found them, which may be long. What is still being answered stays."""
        self.parser = None  # type: ignore[assignment]
        if self.cycle is None or self.cycle.response_complete:
            self.cycle = self.scope = None  # type: ignore[assignment]

    def _refuse_upgrade(self) -> None:
        """Have a parser that knows the same head, but for what asks for another protocol: the body is to come."""
        head = [b"POST / HTTP/1.1\r\n"]
        for name, value in self.headers:
            if name != b"upgrade":
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(_Known(self))
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        self.parse(b"".join([*head, b"\r\n"]))

    def on_message_complete(self) -> None:
        # With an upgrade this is only the end of the head.
        if not self.parser.should_upgrade():
            super().on_message_complete()
