"""Parsers of HTTP/1.1 requests, and of the targets in them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable
from typing import Protocol

import httptools


class UnusableTarget(Exception):
    """The target of a request is no URL."""


def split_target(target: bytes) -> tuple[str, bytes, bytes]:
    """Return path, path as it was sent, and query of a request's target. Raises `UnusableTarget`."""
    try:
        if target[:1] == b"/":
            raw, _, query = target.partition(b"#")[0].partition(b"?")
        else:
            url = httptools.parse_url(target)
            raw, query = url.path or b"/", url.query or b""
        path = raw.decode("ascii")
    except (ValueError, httptools.HttpParserError) as error:
        raise UnusableTarget from error
    return (urllib.parse.unquote(path) if "%" in path else path), raw, query


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
    """Return a parser of what follows the head of a request for another protocol, and data that it must be given first.

    Java's and others' first request has `Upgrade: h2c`. A server may decline by ignoring the header (RFC 9110, section
    7.8). The parser cannot: it ends such a request at its head, and would parse the body as the next request.

    headers: headers of the request. Without `Upgrade` they define the length of its body.
    """
    head = [b"POST / HTTP/1.1\r\n"]
    for name, value in headers:
        if name != b"upgrade":
            head += [name, b": ", value, b"\r\n"]
    return make_parser(_AfterHead(callbacks)), b"".join([*head, b"\r\n"])
