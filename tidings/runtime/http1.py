"""HTTP/1.1 for clients that ask for HTTP/2 with their first request (`Upgrade: h2c`), as Java's and others do.

They stay with HTTP/1.1, which httptools has no word for: it takes a request that asks for another protocol to end with
its head, and its body for the next request.
"""

from __future__ import annotations

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class StayingProtocol(HttpToolsProtocol):
    """uvicorn's, but an upgrade that is not taken up changes nothing of the request. WebSockets are as ever."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._replays_head = False

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as asked:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
                return
            self._refuse_upgrade()
            if not self.transport.is_closing():
                self._parse(data[asked.args[0] :])

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
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._replays_head:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._replays_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._replays_head:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        # With an upgrade this is only the end of the head.
        if not self.parser.should_upgrade():
            super().on_message_complete()
