"""HTTP/1.1 for clients that ask for HTTP/2.

Java's and others' first request has `Upgrade: h2c`. A server may decline by ignoring the header (RFC 9110, section
7.8). The parser cannot: it ends such a request at its head, and would parse the body as the next request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import httptools


class ParserCallbacks(Protocol):
    """Methods that a parser calls with the parts of requests."""

    def on_message_begin(self) -> None: ...
    def on_url(self, url: bytes) -> None: ...
    def on_header(self, name: bytes, value: bytes) -> None: ...
    def on_headers_complete(self) -> None: ...
    def on_body(self, body: bytes) -> None: ...
    def on_message_complete(self) -> None: ...


class _AfterHead:
    """Callbacks that pass on everything behind the head of the first request."""

    def __init__(self, callbacks: ParserCallbacks) -> None:
        self._callbacks = callbacks
        self._is_over = False
        self.on_body = callbacks.on_body
        self.on_message_complete = callbacks.on_message_complete

    def on_message_begin(self) -> None:
        if self._is_over:
            self._callbacks.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._is_over:
            self._callbacks.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_over:
            self._callbacks.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_over:
            self._callbacks.on_headers_complete()
        self._is_over = True


def make_parser(callbacks: ParserCallbacks) -> httptools.HttpRequestParser:
    """Return a parser of requests."""
    parser = httptools.HttpRequestParser(callbacks)
    # Requests behind one with `Connection: close` are no error; they get no response.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def make_parser_of_rest(
    callbacks: ParserCallbacks, headers: Iterable[tuple[bytes, bytes]]
) -> tuple[httptools.HttpRequestParser, bytes]:
    """Return a parser of what follows the head of a request, and a head that it has to be given first.

    headers: headers of the request. Without `Upgrade` they say how long its body is.
    """
    head = [b"POST / HTTP/1.1\r\n"]
    for name, value in headers:
        if name != b"upgrade":
            head += [name, b": ", value, b"\r\n"]
    return make_parser(_AfterHead(callbacks)), b"".join([*head, b"\r\n"])
