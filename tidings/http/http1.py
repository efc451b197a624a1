"""HTTP/1.1 protocol with limits on heads, on waiting requests, on unread responses and on unauthenticated clients."""

from __future__ import annotations

import asyncio
import fcntl
import functools
import http
import json
import math
import struct
import termios
import weakref
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from tidings.aio.dispatch_limit import Cancellable
from tidings.config.env import is_loopback
from tidings.http.acceptor import AdmittedProtocol
from tidings.http.connection_limiter import AdmittedConnection, ConnectionLimiter
from tidings.http.hosts import ANY, UNCHECKED, Hosts
from tidings.http.http1_responses import ResponseTransport
from tidings.http.http1_upgrades import UpgradeDecliningProtocol

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
# RFC 9110, section 15.5.20: this server does not answer for the name in the request.
MISDIRECTED = 421
# Key of a request's scope: the protocol, to be notified of a login. Absent once the connection has logged in.
ADMITTED = "tidings.visitor"
# Key of a request's scope: error text for its host, empty for none.
_HOST_ERROR = "tidings.host_error"

_VERSION = b"HTTP/1."
_SHORTEST = len(b"GET / HTTP/1.1\r\n\r\n")
_VERSIONS = ("1.1", "1.0")
_WRONG_VERSION = "the request is not one of HTTP/1.0 or HTTP/1.1"


class _Flow(FlowControl):
    """uvicorn's flow control, which resumes reading only when the protocol's `may_read` allows it."""

    def __init__(self, transport: asyncio.Transport, protocol: BoundedProtocol) -> None:
        super().__init__(transport)
        # Weak, so that a connection is freed when it ends, without waiting for the garbage collector.
        self._protocol = weakref.ref(protocol)

    def resume_reading(self) -> None:
        protocol = self._protocol()
        if self.read_paused and protocol is not None and protocol.may_read():
            super().resume_reading()


class BoundedProtocol(UpgradeDecliningProtocol, AdmittedProtocol):
    """uvicorn's protocol with limits; WebSockets are unaffected.

    The limits cover the size and duration of a request head, waiting requests, unread responses, and the work for
    unauthenticated clients.
    """

    def __init__(
        self,
        *args: object,
        limiter: ConnectionLimiter,
        hosts: Hosts = ANY,
        head_timeout: float = HEAD_TIMEOUT,
        stalled: float = STALLED,
        **options: object,
    ) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.limiter = limiter
        self.hosts = hosts
        self._head_timeout = head_timeout
        self._stalled = stalled
        self._in_head = True
        # Bytes of the segments since the last one in which a head, a part of a body or a message ended.
        self._unfinished = 0
        # Data that was read, and is parsed when fewer requests wait.
        self._rest = b""
        self._unsent = math.inf
        self._is_stranger = True
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        # Delays for unauthenticated clients: until more is read, and until a request is served.
        self._read_timer: asyncio.TimerHandle | None = None
        self._turn_timer: asyncio.TimerHandle | None = None
        self._refusal: Cancellable | None = None
        self._has_hung_up = False
        # Transport of the response that is being written.
        self._answer: ResponseTransport | None = None

    def arrive(self, admitted: AdmittedConnection) -> None:
        self._admitted = admitted

    def give_way(self) -> None:
        if self.transport is None:
            return
        if self.scheme == "https" or self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._admitted.is_served = True
        self.flow = _Flow(transport, self)
        self._head_timer = self.loop.call_later(self._head_timeout, self._head_is_late)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Close the connection of a client that has disconnected, at most 64 per event-loop iteration.

        When a program with 10,000 connections ends, closing all of them at once takes half a second. With TLS the
        connection is closed when this returns.
        """
        self._has_hung_up = True
        if self.scheme == "https":
            return False
        self.limiter.farewells.take(self.transport.close)
        return not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        super().connection_lost(exc)
        self.forget()

    def leave(self) -> None:
        """Release everything that the connection holds; it is closed, or belongs to another protocol."""
        if self._turn_timer is not None:
            self.limiter.given_up(self._admitted)
        self._stop_timers()
        # uvicorn leaves the timer of an idle connection that was reset.
        self._unset_keepalive_if_required()
        if self._refusal is not None:
            # Otherwise the request would be kept until its refusal is due.
            self._refusal.cancel()
        self._rest = b""
        self.limiter.left(self._admitted)

    def _stop_timers(self) -> None:
        for timer in (self._head_timer, self._stall_timer, self._read_timer, self._turn_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._stall_timer = self._read_timer = self._turn_timer = None

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        # One of them may have started in the previous segment.
        if not self._rest and data.count(_VERSION) < MAX_PIPELINED - len(self.pipeline):
            self._feed(data)
        else:
            self._feed_few(self._rest + data)
        if self._is_stranger:
            self._count(len(data))

    def _feed(self, data: bytes | memoryview) -> None:
        self._unfinished += len(data)
        self.parse(data)
        if self._in_head or self._unfinished or self.cycle is None or self.cycle.response_complete:
            self._await_the_rest(data[-1:] == b"\n")

    def _feed_few(self, data: bytes) -> None:
        """Parse as much of the data as `MAX_PIPELINED` waiting requests allow, and keep the rest."""
        self._rest, view = b"", memoryview(data)
        while view and not self.transport.is_closing() and self.transport.get_protocol() is self:
            room = (MAX_PIPELINED - len(self.pipeline)) * _SHORTEST
            if not room:
                self._rest = bytes(view)
                self.flow.pause_reading()
                return
            self._feed(view[:room])
            view = view[room:]

    def _count(self, size: int) -> None:
        """Count received bytes of an unauthenticated client; refuse it or pause reading when it exceeds its limits."""
        if self._admitted.vouched or self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        is_dropped = not self._in_head and self.cycle is not None and self.cycle.response_complete
        wait = self.limiter.received(self._admitted, size, is_held=not is_dropped)
        if self.limiter.is_over(self._admitted):
            if self.cycle is not None:
                # The client will send a refused request again, so it must not be processed, even if it is complete.
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            self.refuse(429, "too much is held for clients that have not logged in")
        elif wait:
            self.flow.pause_reading()
            if self._read_timer is None:
                self._read_timer = self.loop.call_later(wait, self._read_on)

    def _read_on(self) -> None:
        self._read_timer = None
        self.flow.resume_reading()

    def may_read(self) -> bool:
        """Return whether reading may resume: no request waits, responses are read, and no delay is in force."""
        return not (self.pipeline or self._rest or self.flow.write_paused or self._read_timer)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.flow.pause_reading()
        self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None and not self.transport.is_closing():
            self._stall_timer.cancel()
            self._stall_timer = None
        self.flow.resume_reading()

    def _watch_writing(self) -> None:
        if self._stall_timer is None:
            self._unsent = math.inf if self._is_brief() else self._count_unsent()
            self._stall_timer = self.loop.call_later(self._stalled, self._is_written)

    def _is_brief(self) -> bool:
        """Return whether its responses are only those to unauthenticated clients, which are short."""
        return self._is_stranger and not self._admitted.proxied

    def _is_written(self) -> None:
        """Abort the connection if its peer has read nothing since the last check, or is an unauthenticated client."""
        self._stall_timer = None
        unsent = self._count_unsent()
        if self._is_brief() or unsent >= self._unsent:
            self.transport.abort()
        else:
            self._watch_writing()

    def _count_unsent(self) -> int:
        """Return the bytes that the peer has not acknowledged, in this process and in the kernel."""
        in_system = struct.pack("i", 0)
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            in_system = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, in_system)
        return int(struct.unpack("i", in_system)[0]) + self.transport.get_write_buffer_size()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_closing()

    def _watch_closing(self) -> None:
        if self.transport.get_write_buffer_size():
            self._watch_writing()

    def mark_authenticated(self) -> None:
        """Record that the application received a valid token, password or key."""
        if not self._is_stranger:
            return
        self.limiter.mark_authenticated(self._admitted)
        if self._admitted.is_authenticated:
            self._is_stranger = False
            if self._read_timer is not None:
                self._read_timer.cancel()
                self._read_on()

    @property
    def is_recognised(self) -> bool:
        """Return whether the request in progress, or an earlier one of the same client, has logged in."""
        return self._admitted.is_authenticated or self._admitted.vouched

    def consume(self, tokens: float) -> None:
        """Consume tokens for a request that costs more than others."""
        if self._is_stranger:
            self.limiter.consume(self._admitted, tokens)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        scope: Any = cycle.scope
        if scope["http_version"] not in _VERSIONS:
            self.refuse(400, _WRONG_VERSION)
        elif len(scope["headers"]) > MAX_HEADERS:
            self.refuse(400, f"the request has more than {MAX_HEADERS} headers")
        elif scope.get(_HOST_ERROR) and scope["path"] not in UNCHECKED:
            self.refuse(MISDIRECTED, scope[_HOST_ERROR])
        elif self._is_stranger:
            self._await_turn(cycle, app)
        else:
            self._begin(cycle, app)

    def _begin(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Dispatch a request: urgent paths, such as health checks, at once, others in order, up to the limit."""
        if cycle.scope["path"] in self.limiter.urgent:
            self._start(cycle, app)
        elif not self._take_turn(cycle, app):
            # Refused before any other work is done for it, which would take the time needed for other requests.
            self._refusal = Cancellable(functools.partial(self._refuse, cycle, app))
            self.limiter.refusals.take(self._refusal)

    def _take_turn(self, cycle: RequestResponseCycle, app: ASGI3Application) -> bool:
        if self.limiter.is_overloaded(cycle.scope["path"], self.limiter.dispatch_limit.delay):
            return False
        return self.limiter.dispatch_limit.take(functools.partial(self._begin_now, cycle, app))

    def _refuse(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Dispatch a request whose refusal is due if there is room by now; else refuse it."""
        if not self._take_turn(cycle, app):
            self._begin_now(cycle, self._answer_busy)

    async def _answer_busy(self, scope: Any, receive: Any, send: Any) -> None:
        """Respond, as an ASGI application, that too many requests wait; the connection stays open."""
        self.limiter.shed()
        headers, body = self.refusal(503, "more requests come than can be begun")
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _begin_now(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        # No work for a client that has disconnected.
        if not (self._has_hung_up or self.transport.is_closing()):
            self._start(cycle, app)

    def _start(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answer = ResponseTransport(self.transport)
        cycle.transport = self._answer  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def _await_turn(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        wait = self.limiter.admit_request(self._admitted, cycle.scope["headers"])
        if self._admitted.is_authenticated:
            self._is_stranger = False
        else:
            scope: Any = cycle.scope
            scope[ADMITTED] = self
            if self._admitted.proxied and self._admitted.payer != self._admitted.host:
                scope["client"] = (self._admitted.payer, 0)
        if wait == math.inf:
            self.refuse(429, "too many requests of clients that have not logged in")
        elif wait:
            self._turn_timer = self.loop.call_later(wait, self._have_turn, cycle, app)
        else:
            self._have_turn(cycle, app)

    def _have_turn(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._turn_timer = None
        if self.transport.is_closing():
            # The connection was refused since.
            self.limiter.given_up(self._admitted)
            return
        self.limiter.serve(self._admitted, is_whole=not cycle.more_body)
        self._begin(cycle, app)

    def _await_the_rest(self, is_line: bool) -> None:
        """Set a timer for what the client has still to send, or refuse it when it exceeds a limit.

        is_line: the last data ended with a line break.
        """
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if self._unfinished > MAX_HEAD or (self._in_head and len(self.headers or ()) > MAX_HEADERS):
            self._refuse_size()
        elif self._in_head:
            if is_line and self.url and not self.headers and self.parser.get_http_version() == "0.0":
                # A complete request of HTTP/0.9.
                self.refuse(400, _WRONG_VERSION)
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(self._head_timeout, self._head_is_late)
        elif self.cycle.response_complete and self.timeout_keep_alive_task is None:
            # The rest of a request that was answered early does not count as a new request.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def refuse(self, status: int, text: str) -> None:
        """Respond without the application, and close the connection."""
        if self.transport.is_closing():
            return
        self.transport.write(self.response(status, text))
        self.transport.close()
        self._watch_closing()

    def response(self, status: int, text: str) -> bytes:
        headers, body = self.refusal(status, text)
        if status == 503 and all(name.lower() != b"retry-after" for name, _ in headers):
            headers = [*headers, (b"retry-after", b"1")]
        head = [STATUS_LINE[status]]
        for name, value in (*headers, (b"connection", b"close")):
            head += [name, b": ", value, b"\r\n"]
        return b"".join([*head, b"\r\n", body])

    def refusal(self, status: int, text: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Return headers and body of a refusal."""
        body = json.dumps({"error": {"reason": http.HTTPStatus(status).phrase, "detail": text}}).encode()
        return [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())], body

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, msg)

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
            # This process has paused reading.
            self._head_timer = self.loop.call_later(self._head_timeout, self._head_is_late)
        elif not self.transport.is_closing():
            self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header to the request; drop trailers (RFC 9110, section 6.5.1).

        The application already has the list of headers, and may have authenticated the client by it.
        """
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._unfinished = 0
        if self._head_timer is not None:
            self._stop_head_timer()
        if self.hosts:
            # Checked now: while this request waits for earlier ones, `url` is overwritten by later ones.
            scope: Any = self.scope
            scope[_HOST_ERROR] = self.host_error()
        super().on_headers_complete()

    def host_error(self) -> str:
        """Return the error text for the host of the request whose head is complete; empty for none."""
        return self.hosts.host_error(self.headers, self.url, is_local=self.is_local)

    @property
    def is_local(self) -> bool:
        """True if the connection comes from this machine."""
        return self.client is not None and is_loopback(self.client[0])

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished = 0
        # With an upgrade this is only the end of the head.
        if not self.parser.should_upgrade():
            super().on_message_complete()
            if self._is_stranger and self._turn_timer is None and not self.cycle.response_complete:
                self.limiter.serve(self._admitted, is_whole=True)

    def on_response_complete(self) -> None:
        assert self._answer is not None
        self._answer.flush()
        self._answer = None
        if self._is_stranger and not self.pipeline:
            self.limiter.ended(self._admitted)
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_closing()
            return
        cycle = self.cycle
        if cycle.body and cycle.response_complete:
            # The body will not be read.
            cycle.body = bytearray()
        if self._rest:
            self._feed_few(self._rest)
        # The last of the waiting requests is in progress, and may wait for its body.
        if self.flow.read_paused:
            self.flow.resume_reading()
