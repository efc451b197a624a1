"""One HTTP request and its response, with the `receive` and `send` of an ASGI application."""

from __future__ import annotations

import asyncio
import dataclasses
import email.utils
import functools
import http
import logging
import re
import time
from collections.abc import Iterable
from typing import Protocol

from starlette.types import ASGIApp, Message, Scope

log = logging.getLogger(__name__)

_NOT_IN_NAMES = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_NOT_IN_VALUES = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# Response headers that decide how the response ends.
_FRAMING = frozenset((b"content-length", b"transfer-encoding", b"connection"))
# Statuses of responses without a body.
_BODYLESS = frozenset((204, 304))
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FAILED = b"Internal Server Error"
_FAILED_HEADERS = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-length", b"%d" % len(_FAILED)),
    (b"connection", b"close"),
)


def _status_line(status: int) -> bytes:
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


STATUS_LINES = {status: _status_line(status) for status in range(200, 600)}


class InvalidResponse(Exception):
    """The application sent a message that is no valid part of a response; the connection closes."""


class ExchangeConnection(Protocol):
    """Connection of a request, as its exchange uses it."""

    transport: asyncio.Transport
    is_writing_paused: bool

    def resume_reading(self) -> None:
        """Resume reading, unless there is another reason to pause."""
        ...

    async def drain(self) -> None:
        """Wait until the transport accepts more data."""
        ...

    def completed(self, exchange: HttpExchange) -> None:
        """Record that the response is complete."""
        ...


# Key of a request's scope: its body was complete when the application was called, so that `receive` returns it at once.
RECEIVED = "tidings.received"
# Type of a message by which an application has the connection closed without a response, as a test has requested.
WITHHELD = "tidings.response.withheld"


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class HttpExchange:
    """A request on a connection and its response.

    The head of the response is written together with the first part of its body: two writes would wake the client
    twice.
    """

    connection: ExchangeConnection
    scope: Scope
    target: bytes  # target of the request line
    _: dataclasses.KW_ONLY
    keep_alive: bool  # whether the connection stays open after the response
    awaits_continue: bool  # whether the client waits for `100 Continue` before it sends the body
    # Received part of the body that the application has not read, and whether more of the request is to come.
    body: bytes | bytearray = dataclasses.field(init=False, default=b"")
    has_more: bool = dataclasses.field(init=False, default=True)
    # Whether the response is partly written, completed by the application, started by the application.
    is_written: bool = dataclasses.field(init=False, default=False)
    is_complete: bool = dataclasses.field(init=False, default=False)
    _is_started: bool = dataclasses.field(init=False, default=False)
    # Whether the client has disconnected, or the connection has refused the rest of the request.
    is_disconnected: bool = dataclasses.field(init=False, default=False)
    # The application's task while it runs.
    _task: asyncio.Task[None] | None = dataclasses.field(init=False, default=None)
    # Whether the application has received the end of the body.
    _is_received: bool = dataclasses.field(init=False, default=False)
    # Set when the request's state changes; created when the application waits for it.
    _changed: asyncio.Event | None = dataclasses.field(init=False, default=None)
    # Head of the response until it is written.
    _head: bytes = dataclasses.field(init=False, default=b"")
    # Whether the response has a body, and its framing: chunks, or bytes left of `Content-Length`; `None` for a body
    # that ends with the connection.
    _has_body: bool = dataclasses.field(init=False, default=True)
    _is_chunked: bool = dataclasses.field(init=False, default=False)
    _left: int | None = dataclasses.field(init=False, default=None)

    def start(self, app: ASGIApp, loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[None]]) -> None:
        """Call the application in a task, which belongs to `tasks` while it runs.

        Errors are logged, and answered with 500 unless a part of the response is written.
        """
        self._task = loop.create_task(self._run(app, tasks))
        tasks.add(self._task)

    async def _run(self, app: ASGIApp, tasks: set[asyncio.Task[None]]) -> None:
        if not self.has_more:
            self.scope[RECEIVED] = True
        try:
            await app(self.scope, self.receive, self.send)
            if not (self.is_complete or self.is_disconnected):
                raise InvalidResponse("the application returned before it completed the response")
        except Exception as error:
            log.error("http.application_failed", extra={"path": self.scope["path"]}, exc_info=error)
            self._fail()
        except asyncio.CancelledError:
            self._fail()
            raise
        finally:
            assert self._task is not None
            tasks.discard(self._task)
            self._task = None

    def disconnect(self) -> None:
        """Record that no more of the request is read and no response is written."""
        self.is_disconnected = True
        self.body = b""
        self._notify()

    def add_body(self, part: bytes) -> None:
        """Add a received part of the body."""
        if not self.body:
            self.body = part
        else:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += part
        self._notify()

    def end_body(self) -> None:
        """Record that the request has been received completely."""
        self.has_more = False
        self._notify()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set()

    async def receive(self) -> Message:
        """Return the next part of the body, or the disconnection. After the response it reports the disconnection."""
        if self.awaits_continue:
            self.awaits_continue = False
            if not self.connection.transport.is_closing():
                self.connection.transport.write(_CONTINUE)
        while not (self.is_complete or self.is_disconnected):
            if self.body or not (self.has_more or self._is_received):
                body, self.body = bytes(self.body), b""
                if self.has_more:
                    self.connection.resume_reading()
                else:
                    self._is_received = True
                return {"type": "http.request", "body": body, "more_body": self.has_more}
            self.connection.resume_reading()
            if self._changed is None:
                self._changed = asyncio.Event()
            self._changed.clear()
            await self._changed.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Write a part of the response. Does nothing after a disconnection. Raises `InvalidResponse`."""
        if self.connection.is_writing_paused:
            await self.connection.drain()
        if self.is_disconnected:
            return
        kind = message["type"]
        if kind == "http.response.start" and not self._is_started:
            self._start(message["status"], message.get("headers", ()))
        elif kind == "http.response.body" and self._is_started and not self.is_complete:
            self._add(message.get("body", b""), has_more=message.get("more_body", False))
        elif kind == WITHHELD and not self.is_written:
            self.disconnect()
            self.connection.transport.abort()
        else:
            raise InvalidResponse(f"the application sent {kind} when it was not due")

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Prepare the head of the response."""
        self.awaits_continue, self._is_chunked, self._left = False, False, None
        parts = [STATUS_LINES[status], _date_line(int(time.time()))]
        for given, value in headers:
            name = _field_name(given)
            if _NOT_IN_VALUES.search(value):
                raise InvalidResponse(f"the value of {given!r} contains a control character")
            if name in _FRAMING:
                self._frame(name, value)
                if name == b"connection":
                    # It is written below.
                    continue
            parts += (name, b": ", value, b"\r\n")
        if self.scope["method"] == "HEAD" or status in _BODYLESS:
            self._has_body = False
        elif self._left is None and not self._is_chunked and self.scope["http_version"] == "1.1":
            self._is_chunked = True
            parts.append(b"transfer-encoding: chunked\r\n")
        parts.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        self._head = b"".join(parts)
        self._is_started = True

    def _frame(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            self._left = int(value)
        elif name == b"transfer-encoding":
            self._is_chunked = value.lower() == b"chunked"
        elif b"close" in value.lower():
            self.keep_alive = False

    def _add(self, body: bytes, *, has_more: bool) -> None:
        """Write a part of the body, with the head before the first part."""
        data, self._head = self._head, b""
        if self._has_body:
            if self._is_chunked:
                if body:
                    data += b"%x\r\n%b\r\n" % (len(body), body)
                if not has_more:
                    data += b"0\r\n\r\n"
            else:
                if self._left is not None:
                    self._left -= len(body)
                    if self._left < 0 or (self._left and not has_more):
                        raise InvalidResponse("the body of the response is not as long as its Content-Length")
                data = data + body if data else body
        if data:
            self.connection.transport.write(data)
        self.is_written = True
        if not has_more:
            self.is_complete = True
            self._notify()
            self.connection.completed(self)

    def _fail(self) -> None:
        """Respond with 500 if nothing of a response is written; else close the connection."""
        if self.is_disconnected or self.is_complete:
            return
        if self.is_written:
            self.connection.transport.close()
            return
        self._start(500, _FAILED_HEADERS)
        self._add(_FAILED, has_more=False)


@functools.lru_cache(maxsize=256)
def _field_name(name: bytes) -> bytes:
    """Return a response header's name in lower case. Raises `InvalidResponse`."""
    if not name or _NOT_IN_NAMES.search(name):
        raise InvalidResponse(f"{name!r} is not a header name")
    return name.lower()


@functools.lru_cache(maxsize=1)
def _date_line(now: int) -> bytes:
    """Return the `Date` header line. now: seconds since the epoch."""
    return f"date: {email.utils.formatdate(now, usegmt=True)}\r\n".encode()
