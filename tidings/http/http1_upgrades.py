"""HTTP/1.1 for clients that ask for HTTP/2.

Java's and others' first request has `Upgrade: h2c`. The connection stays with HTTP/1.1, which httptools does not
support: it ends a request that asks for another protocol at its head, and parses its body as the next request.
"""

from __future__ import annotations

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class _Known:
    """Parser callbacks for a request whose head the protocol already has: passes on everything but that head."""

    def __init__(self, protocol: UpgradeDecliningProtocol) -> None:
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


class UpgradeDecliningProtocol(HttpToolsProtocol):
    """uvicorn's protocol, but a declined upgrade does not change the request. WebSocket upgrades are unaffected."""

    def parse(self, data: bytes | memoryview) -> None:
        """Parse more data. Afterwards the connection may be refused or belong to another protocol."""
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
                    if self.transport.get_protocol() is not self:
                        self.forget()
                    return
                data = memoryview(data)[asked.args[0] :]
            self._refuse_upgrade()
            if self.transport.is_closing():
                return

    def forget(self) -> None:
        """Break the reference cycles of a connection that receives nothing more.

        Otherwise the objects would stay until the next garbage collection. A response in progress stays.
        """
        self.parser = None  # type: ignore[assignment]
        if self.cycle is None or self.cycle.response_complete:
            self.cycle = self.scope = None  # type: ignore[assignment]

    def _refuse_upgrade(self) -> None:
        """Replace the parser by one that has parsed the same head without the upgrade, and expects the body."""
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
