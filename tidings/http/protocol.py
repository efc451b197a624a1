"""HTTP/1.1 connections of a server (RFC 9112), with limits on everything that a client may leave unfinished."""

from __future__ import annotations

import asyncio
import dataclasses
import http
import json
import math
from typing import Any, Protocol

import httptools
from starlette.types import ASGIApp, Scope

from tidings.http.deadline import Deadline
from tidings.http.exchange import STATUS_LINES, HttpExchange
from tidings.http.request_parser import UnusableTarget, make_parser, make_parser_of_rest, split_target
from tidings.http.unread_responses import UnreadResponses

# Seconds that the head of a request may take to arrive.
HEAD_TIMEOUT = 10.0
# Bytes of a request line and headers, or of data after the head without a part of the body or the request's end: chunk
# sizes, chunk extensions and trailers. Counts whole segments (of 256 KiB at most) since the last one in which a head, a
# part of a body or a message ended.
MAX_HEAD = 64 * 1024
# Headers of a request.
MAX_HEADERS = 128
# Requests on a connection that wait for the one before them.
MAX_PIPELINED = 16
# Seconds after which a connection is aborted if its peer reads nothing of the written data.
STALLED = 30.0
# Seconds for which an idle connection is kept open.
KEEP_ALIVE = 5.0
# Bytes of a body that the application has not read, at which reading pauses.
_MAX_UNREAD_BODY = 64 * 1024

_VERSION = b"HTTP/1."
_SHORTEST = len(b"GET / HTTP/1.1\r\n\r\n")
_VERSIONS = ("1.1", "1.0")
_WRONG_VERSION = "the request is not one of HTTP/1.0 or HTTP/1.1"
_NO_HTTP = "the request is not valid HTTP"
_TOO_MANY_HEADERS = f"the request has more than {MAX_HEADERS} headers"
_ASGI = {"version": "3.0", "spec_version": "2.3"}

Headers = list[tuple[bytes, bytes]]


@dataclasses.dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of each connection of a server; the constants above explain them."""

    head_timeout: float = HEAD_TIMEOUT
    head_bytes: int = MAX_HEAD
    stalled: float = STALLED
    keep_alive: float = KEEP_ALIVE


class ServerConfig(Protocol):
    """Configuration of uvicorn, as far as connections use it. `limits` is an `HttpLimits` that it may also have."""

    loaded_app: Any
    timeout_keep_alive: int


class ServerState(Protocol):
    """State of uvicorn's server: its open connections, and the tasks of requests in progress.

    At a planned stop the server calls `shutdown` of each connection.
    """

    connections: set[Any]
    tasks: set[asyncio.Task[None]]


class _Ended(Exception):
    """Nothing more is parsed on this connection."""


class HttpProtocol(asyncio.Protocol):
    """Server's side of an HTTP/1.1 connection, for uvicorn's setting `http`.

    Requests are parsed as they arrive and served one after the other. Subclasses may override `begin`, `received`,
    `completed`, `released`, `may_read`, `is_brief`, `accepts_upgrade`, `upgrade` and `refusal`.
    """

    def __init__(
        self,
        *,
        config: ServerConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Create the connection with the arguments that uvicorn passes.

        app_state: state of the application, copied into the scope of each request.
        """
        self.loop = _loop or asyncio.get_running_loop()
        self.app: ASGIApp = config.loaded_app
        self.server_state = server_state
        self._app_state = app_state
        limits: HttpLimits | None = getattr(config, "limits", None)
        self.limits = limits or HttpLimits(keep_alive=config.timeout_keep_alive)
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.client: tuple[str, int] | None = None
        self.scheme = "http"
        self._server: tuple[str, int] | None = None
        self._unread: UnreadResponses = None  # type: ignore[assignment]
        self._parser: httptools.HttpRequestParser = make_parser(self)
        # The request that is received or was received last, the one that is served, and those that wait for it.
        self.exchange: HttpExchange | None = None
        self.served: HttpExchange | None = None
        self.pipeline: list[HttpExchange] = []
        # Head of the request that is received, or was received last.
        self.target = b""
        self.headers: Headers = []
        self._awaits_continue = False
        self.is_in_head = True
        # Whether the request whose head was received asks for another protocol; its scope, if `accepts_upgrade` has
        # agreed.
        self._is_upgrade = False
        self._upgrade_scope: Scope | None = None
        # Bytes of the segments since the last one in which a head, a part of a body or a message ended.
        self._unfinished = 0
        # Data that was read, and is parsed when fewer requests wait.
        self._rest = b""
        # Whether nothing more is parsed: the connection then closes after the responses in progress and, if set,
        # `_refusal`.
        self._is_ended = False
        self._refusal: tuple[int, str] | None = None
        self._is_reading_paused = False
        self.is_writing_paused = False
        self._writable: asyncio.Event | None = None
        # End of the time for a head, or for which the connection may be idle.
        self._deadline = Deadline(self._deadline_passed)

    # Hooks for subclasses.

    def begin(self, exchange: HttpExchange) -> None:
        """Serve the next request, after the response to the one before it: call `start` or `reject`, now or later."""
        self.start(exchange)

    def received(self, exchange: HttpExchange) -> None:
        """Record that a request has been received completely."""

    def released(self) -> None:
        """Release everything else that the connection holds; it is closed, or belongs to another protocol."""

    def may_read(self) -> bool:
        """Return whether reading may resume: no request waits, and responses are read."""
        return not (self.pipeline or self._rest or self.is_writing_paused or self._is_ended)

    def is_brief(self) -> bool:
        """Return whether all responses are so short that the client must read them within the time limit."""
        return False

    def accepts_upgrade(self, scope: Scope) -> bool:
        """Return whether to call `upgrade` for a request for another protocol; else it is served over HTTP."""
        return False

    def upgrade(self, scope: Scope, early: bytes) -> None:
        """Hand the connection over, or refuse. early: data behind the head of the request."""
        raise NotImplementedError

    def refusal(self, status: int, text: str) -> tuple[Headers, bytes]:
        """Return headers and body of a refusal."""
        body = json.dumps({"error": {"reason": http.HTTPStatus(status).phrase, "detail": text}}).encode()
        return [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))], body

    # Calls by the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.client, self._server = _address(transport, "peername"), _address(transport, "sockname")
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        self._unread = UnreadResponses(transport, self.limits.stalled, is_brief=self.is_brief)
        self.server_state.connections.add(self)
        self._deadline.set(self.limits.head_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        for exchange in (self.served, self.exchange):
            if exchange is not None and not exchange.is_complete:
                exchange.disconnect()
        self.resume_writing()
        self.release()

    def data_received(self, data: bytes) -> None:
        if self._is_ended:
            return
        if not self.is_in_head:
            self._deadline.at = math.inf
        # One of them may have started in the previous segment.
        if not self._rest and data.count(_VERSION) < MAX_PIPELINED - len(self.pipeline):
            self._feed(data)
        else:
            self._feed_few(self._rest + data)

    def pause_writing(self) -> None:
        self.is_writing_paused = True
        self.pause_reading()
        self._unread.start()

    def resume_writing(self) -> None:
        self.is_writing_paused = False
        if self._writable is not None:
            self._writable.set()
        if not self.transport.is_closing():
            self._unread.stop()
            self.resume_reading()

    # Reading and writing.

    def pause_reading(self) -> None:
        """Pause reading until `resume_reading`."""
        if not self._is_reading_paused and not self.transport.is_closing():
            self._is_reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless there is another reason to pause."""
        if self._is_reading_paused and self.may_read() and not self.transport.is_closing():
            self._is_reading_paused = False
            self.transport.resume_reading()

    async def drain(self) -> None:
        """Wait until the transport accepts more data."""
        if self._writable is None:
            self._writable = asyncio.Event()
        while self.is_writing_paused:
            self._writable.clear()
            await self._writable.wait()

    def close(self) -> None:
        """Close the connection when the written data is read, at the latest after the time limit for that."""
        self._is_ended = True
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._unread.start()

    def abort(self) -> None:
        """Close the connection and drop data that is not written."""
        self.transport.abort()

    def shutdown(self) -> None:
        """Close the connection after the requests that were received; at once if there are none."""
        last = self.pipeline[-1] if self.pipeline else self.served
        if last is None:
            self.close()
        else:
            last.keep_alive = False

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Give the connection to another protocol."""
        self.release()
        self.transport.set_protocol(protocol)

    def release(self) -> None:
        """Release everything that the connection holds; it is closed, or belongs to another protocol.

        This breaks the reference cycles, so that nothing stays until a garbage collection.
        """
        self.server_state.connections.discard(self)
        self._deadline.cancel()
        self._unread.stop()
        self.released()
        self.pipeline.clear()
        self.exchange = self.served = None
        self._rest = b""
        self._unread = self._parser = self._deadline = None  # type: ignore[assignment]

    # Parsing.

    def _feed(self, data: bytes | memoryview) -> None:
        self._unfinished += len(data)
        self._parse(data)
        if self.is_in_head or self._unfinished or self.exchange is None or self.exchange.is_complete:
            self._await_rest(data[-1:] == b"\n")

    def _feed_few(self, data: bytes) -> None:
        """Parse as much of the data as `MAX_PIPELINED` waiting requests allow, and keep the rest."""
        self._rest, view = b"", memoryview(data)
        while view and self.is_open():
            room = (MAX_PIPELINED - len(self.pipeline)) * _SHORTEST
            if not room:
                self._rest = bytes(view)
                self.pause_reading()
                return
            self._feed(view[:room])
            view = view[room:]

    def is_open(self) -> bool:
        """Return whether more data is parsed: the connection is neither closing, nor refused, nor handed over."""
        return self._parser is not None and not self._is_ended and not self.transport.is_closing()

    def _parse(self, data: bytes | memoryview) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserCallbackError as error:
                if isinstance(error.__context__, UnusableTarget):
                    self.refuse(400, "the target of the request is no URL")
                elif not isinstance(error.__context__, _Ended):
                    raise
                return
            except httptools.HttpParserError:
                self.refuse(400, _NO_HTTP)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = memoryview(data)[upgrade.args[0] :]
            if self._upgrade_scope is not None:
                if len(self.headers) > MAX_HEADERS:
                    self.refuse(400, _TOO_MANY_HEADERS)
                else:
                    self.upgrade(self._upgrade_scope, bytes(data))
                return
            if self._is_ended:
                return
            self._is_upgrade = False
            self._parser, head = make_parser_of_rest(self, self.headers)
            data = head + bytes(data)

    def _await_rest(self, is_line: bool) -> None:
        """Set the deadline for what the client has still to send, or refuse it when it exceeds a limit.

        is_line: the last data ended with a line break.
        """
        if not self.is_open():
            return
        if self._unfinished > self.limits.head_bytes:
            is_trailer = not self.is_in_head and self.exchange is not None and self.exchange.has_more
            place = "the headers after the request's body are" if is_trailer else "the head of the request is"
            self.refuse(400, f"{place} over {self.limits.head_bytes} bytes")
        elif self.is_in_head and len(self.headers) > MAX_HEADERS:
            self.refuse(400, _TOO_MANY_HEADERS)
        elif self.is_in_head:
            if is_line and self.target and not self.headers and self._parser.get_http_version() == "0.0":
                # A complete request of HTTP/0.9.
                self.refuse(400, _WRONG_VERSION)
            elif self._deadline.at == math.inf:
                self._deadline.set(self.limits.head_timeout)
        elif self.served is None and self._deadline.at == math.inf:
            # The rest of a request that was answered early does not count as a new request.
            self._deadline.set(self.limits.keep_alive)

    def _deadline_passed(self) -> None:
        if self.is_in_head and self._is_reading_paused:
            # This process has paused reading.
            self._deadline.set(self.limits.head_timeout)
        elif not self.transport.is_closing():
            self.close()

    # Calls by the parser.

    def on_message_begin(self) -> None:
        self.is_in_head = True
        self._awaits_continue = False
        self.target, self.headers = b"", []

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header to the request; drop trailers (RFC 9110, section 6.5.1).

        The application already has the list of headers, and may have authenticated the client by it.
        """
        if self.is_in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self._awaits_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._is_ended:
            raise _Ended
        parser = self._parser
        self.is_in_head, self._unfinished, self._deadline.at = False, 0, math.inf
        version = parser.get_http_version()
        path, raw_path, query = split_target(self.target)
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self._server,
            "client": self.client,
            "scheme": self.scheme,
            "method": parser.get_method().decode("ascii"),
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
            "state": self._app_state.copy(),
        }
        self._is_upgrade = parser.should_upgrade()
        if self._is_upgrade and self.accepts_upgrade(scope):
            self._upgrade_scope = scope
            return
        is_alive = version == "1.1" and parser.should_keep_alive()
        self.exchange = exchange = HttpExchange(
            self, scope, self.target, keep_alive=is_alive, awaits_continue=self._awaits_continue
        )
        if self.served is None:
            self._serve(exchange)
        else:
            self.pipeline.append(exchange)
            self.pause_reading()

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        exchange = self.exchange
        assert exchange is not None
        # The rest of a request that was answered early is dropped.
        if not (exchange.is_complete or exchange.is_disconnected):
            exchange.add_body(body)
            if len(exchange.body) > _MAX_UNREAD_BODY:
                self.pause_reading()

    def on_message_complete(self) -> None:
        self._unfinished = 0
        # With an upgrade this is only the end of the head.
        if not self._is_upgrade:
            exchange = self.exchange
            assert exchange is not None
            exchange.end_body()
            self.received(exchange)

    # Serving.

    def _serve(self, exchange: HttpExchange) -> None:
        """Make a request the current one, which is served now."""
        self.served = exchange
        if exchange.scope["http_version"] not in _VERSIONS:
            self.reject(400, _WRONG_VERSION)
        elif len(exchange.scope["headers"]) > MAX_HEADERS:
            self.reject(400, _TOO_MANY_HEADERS)
        else:
            self.begin(exchange)

    def start(self, exchange: HttpExchange, app: ASGIApp | None = None) -> None:
        """Call the application for a request. app: `None` for that of the server."""
        exchange.start(app or self.app, self.loop, self.server_state.tasks)

    def completed(self, exchange: HttpExchange) -> None:
        """Continue after the response to `exchange`: with the next request, or by closing the connection."""
        self.served = None
        if not exchange.keep_alive or self.transport.is_closing():
            self.close()
            return
        # The rest of the body will not be read.
        exchange.body = b""
        if self.pipeline:
            self._serve(self.pipeline.pop(0))
        elif self._refusal is not None:
            self._write_refusal(*self._refusal)
        elif not self.is_in_head:
            self._deadline.set(self.limits.keep_alive)
        if self._rest:
            self._feed_few(self._rest)
        # The last of the waiting requests is in progress, and may wait for its body.
        self.resume_reading()

    def reject(self, status: int, text: str) -> None:
        """Respond to the current request without the application, and close the connection."""
        exchange, self.served = self.served, None
        if exchange is not None:
            exchange.disconnect()
            if exchange.is_written:
                self.close()
                return
        self._write_refusal(status, text)

    def refuse(self, status: int, text: str) -> None:
        """Respond to the request that is being received, after those before it, and close the connection."""
        exchange = None if self.is_in_head else self.exchange
        if exchange is None or not exchange.has_more:
            # The request has no exchange yet.
            if self.served is None:
                self._write_refusal(status, text)
                return
        elif exchange.is_complete:
            self.close()
            return
        elif exchange is self.served:
            self.reject(status, text)
            return
        else:
            self.pipeline.pop()
        self._is_ended, self._refusal = True, (status, text)
        self.pause_reading()

    def _write_refusal(self, status: int, text: str) -> None:
        if not self.transport.is_closing():
            self.transport.write(self.response(status, text))
            self.close()

    def response(self, status: int, text: str) -> bytes:
        """Return a complete response after which the connection closes."""
        headers, body = self.refusal(status, text)
        if status == 503 and all(name.lower() != b"retry-after" for name, _ in headers):
            headers = [*headers, (b"retry-after", b"1")]
        head = [STATUS_LINES[status]]
        for name, value in (*headers, (b"connection", b"close")):
            head += [name, b": ", value, b"\r\n"]
        return b"".join([*head, b"\r\n", body])


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int] | None:
    """Return host and port of an end of the connection. name: `peername` or `sockname`."""
    address = transport.get_extra_info(name)
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None
