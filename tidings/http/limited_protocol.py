"""HTTP/1.1 connections that the connection limiter admits, with limits on the work for unauthenticated clients."""

from __future__ import annotations

import asyncio
import functools
import math
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from tidings.aio.dispatch_limit import Cancellable
from tidings.config.env import is_loopback
from tidings.http.acceptor import AdmittedProtocol
from tidings.http.connection_limiter import AdmittedConnection, ConnectionLimiter
from tidings.http.exchange import HttpExchange
from tidings.http.hosts import ANY, UNCHECKED, Hosts
from tidings.http.protocol import HttpLimits, HttpProtocol
from tidings.http.server import AsgiConfig

# RFC 9110, section 15.5.20: this server does not answer for the name in the request.
MISDIRECTED = 421
# Key of a request's scope: the protocol, to be notified of a login. Absent once the connection has logged in.
ADMITTED = "tidings.admitted"


def consume(scope: Scope, tokens: float) -> None:
    """Consume extra rate-limit tokens of an unauthenticated client for an expensive request. A login refunds them."""
    admitted = scope.get(ADMITTED)
    if admitted is not None:
        admitted.consume(tokens)


def mark_authenticated(scope: Scope) -> None:
    """Mark the client that sent a request as authenticated, and with it the connection."""
    admitted = scope.get(ADMITTED)
    if admitted is not None:
        admitted.mark_authenticated()


class LimitedConfig(AsgiConfig):
    """Configuration of a server whose connections a connection limiter admits."""

    def __init__(
        self,
        app: ASGIApp,
        protocol: type[LimitedHttpProtocol],
        limits: HttpLimits,
        *,
        limiter: ConnectionLimiter,
        hosts: Hosts = ANY,
    ) -> None:
        """hosts: names by which clients may address the server."""
        super().__init__(app, protocol, limits)
        self.limiter = limiter
        self.hosts = hosts


class LimitedHttpProtocol(HttpProtocol, AdmittedProtocol):
    """HTTP/1.1 connection that serves requests in the order and at the rate that the connection limiter allows.

    Once a client has logged in, only the limits of `HttpProtocol` and the number of requests dispatched per event-loop
    iteration apply.
    """

    def __init__(self, *, config: LimitedConfig, **arguments: Any) -> None:
        super().__init__(config=config, **arguments)
        self.limiter = config.limiter
        self.hosts = config.hosts
        self.admitted: AdmittedConnection = None  # type: ignore[assignment]
        self._is_unauthenticated = True
        # Delays for unauthenticated clients: until more is read, and until a request is served.
        self._read_timer: asyncio.TimerHandle | None = None
        self._admission_timer: asyncio.TimerHandle | None = None
        # Refusal of the request in progress that is not due yet.
        self._delayed_refusal: Cancellable | None = None
        self._has_hung_up = False

    # Admission.

    def set_admitted(self, admitted: AdmittedConnection) -> None:
        self.admitted = admitted

    def evict(self) -> None:
        if self.transport is None:
            return
        if self.scheme == "https" or self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def mark_authenticated(self) -> None:
        """Record that the application received a valid token, password or key."""
        if not self._is_unauthenticated:
            return
        self.limiter.mark_authenticated(self.admitted)
        if self.admitted.is_authenticated:
            self._is_unauthenticated = False
            if self._read_timer is not None:
                self._read_timer.cancel()
                self._read_on()

    @property
    def is_recognised(self) -> bool:
        """Return whether the request in progress, or an earlier one of the same client, has logged in."""
        return self.admitted.is_authenticated or self.admitted.request_authenticated

    def consume(self, tokens: float) -> None:
        """Consume tokens for a request that costs more than others."""
        if self._is_unauthenticated:
            self.limiter.consume(self.admitted, tokens)

    # Calls by the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.admitted.is_served = True

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_unauthenticated:
            self._count(len(data))

    def eof_received(self) -> bool:
        """Close the connection of a client that has disconnected, at most 64 per event-loop iteration.

        When a program with 10,000 connections ends, closing all of them at once takes half a second. With TLS the
        connection is closed when this returns.
        """
        self._has_hung_up = True
        if self.scheme == "https":
            return False
        self.limiter.closings.take(self.transport.close)
        return not self.transport.is_closing()

    # Unauthenticated clients.

    def _count(self, size: int) -> None:
        """Count received bytes of an unauthenticated client; refuse it or pause reading when it exceeds its limits."""
        if self.admitted.request_authenticated or not self.is_open():
            return
        is_dropped = not self.is_in_head and self.exchange is not None and self.exchange.is_complete
        wait = self.limiter.received(self.admitted, size, is_held=not is_dropped)
        if self.limiter.is_over(self.admitted):
            # The client will send a refused request again, so it must not be processed, even if it is complete.
            self.reject(429, "too much memory is used by unauthenticated clients")
        elif wait:
            self.pause_reading()
            if self._read_timer is None:
                self._read_timer = self.loop.call_later(wait, self._read_on)

    def _read_on(self) -> None:
        self._read_timer = None
        self.resume_reading()

    def may_read(self) -> bool:
        return self._read_timer is None and super().may_read()

    def is_brief(self) -> bool:
        """Return whether its responses are only those to unauthenticated clients, which are short."""
        return self._is_unauthenticated and not self.admitted.proxied

    def _admit(self, exchange: HttpExchange) -> None:
        wait = self.limiter.admit_request(self.admitted, exchange.scope["headers"], exchange.scope["path"])
        if self.admitted.is_authenticated:
            self._is_unauthenticated = False
        else:
            exchange.scope[ADMITTED] = self
            if self.admitted.proxied and self.admitted.payer != self.admitted.host:
                exchange.scope["client"] = (self.admitted.payer, 0)
        if wait == math.inf:
            self.reject(429, "too many requests of unauthenticated clients")
        elif wait:
            self._admission_timer = self.loop.call_later(wait, self._start_admitted, exchange)
        else:
            self._start_admitted(exchange)

    def _start_admitted(self, exchange: HttpExchange) -> None:
        self._admission_timer = None
        if self.transport.is_closing():
            # The connection was refused since.
            self.limiter.refund_request(self.admitted)
            return
        self.limiter.serve(self.admitted, is_whole=not exchange.has_more)
        self._dispatch(exchange)

    def received(self, exchange: HttpExchange) -> None:
        if self._is_unauthenticated and self._admission_timer is None and not exchange.is_complete:
            self.limiter.serve(self.admitted, is_whole=True)

    def completed(self, exchange: HttpExchange) -> None:
        if self._is_unauthenticated and not self.pipeline:
            self.limiter.end_request(self.admitted)
        super().completed(exchange)

    def released(self) -> None:
        if self._admission_timer is not None:
            self.limiter.refund_request(self.admitted)
        for timer in (self._read_timer, self._admission_timer):
            if timer is not None:
                timer.cancel()
        self._read_timer = self._admission_timer = None
        if self._delayed_refusal is not None:
            # Otherwise the request would be kept until its refusal is due.
            self._delayed_refusal.cancel()
        self.limiter.release_slot(self.admitted)

    # Dispatch of requests.

    def begin(self, exchange: HttpExchange) -> None:
        if (
            self.hosts
            and exchange.scope["path"] not in UNCHECKED
            and (error := self.host_error(exchange.scope, exchange.target))
        ):
            self.reject(MISDIRECTED, error)
        elif self._is_unauthenticated:
            self._admit(exchange)
        else:
            self._dispatch(exchange)

    def host_error(self, scope: Scope, target: bytes) -> str:
        """Return the error text for the host of a request; empty for none."""
        return self.hosts.host_error(scope["headers"], target, is_local=self.is_local)

    @property
    def is_local(self) -> bool:
        """True if the connection comes from this machine."""
        return self.client is not None and is_loopback(self.client[0])

    def _dispatch(self, exchange: HttpExchange) -> None:
        """Start a request: urgent paths, such as health checks, at once, others in order, up to the limit."""
        if exchange.scope["path"] in self.limiter.urgent:
            self.start(exchange)
        elif not self._schedule(exchange):
            # Refused before any other work is done for it, which would take the time needed for other requests.
            self._delayed_refusal = Cancellable(functools.partial(self._refuse, exchange))
            self.limiter.refusals.take(self._delayed_refusal)

    def _schedule(self, exchange: HttpExchange) -> bool:
        if self.limiter.is_overloaded(exchange.scope["path"], self.limiter.dispatch_limit.delay):
            return False
        return self.limiter.dispatch_limit.take(functools.partial(self._start_now, exchange))

    def _refuse(self, exchange: HttpExchange) -> None:
        """Dispatch a request whose refusal is due if there is room by now; else refuse it."""
        if not self._schedule(exchange):
            self._start_now(exchange, self._respond_busy)

    async def _respond_busy(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond, as an ASGI application, that too many requests wait; the connection stays open."""
        self.limiter.shed()
        headers, body = self.refusal(503, "more requests arrive than can be dispatched")
        start: dict[str, Any] = {"type": "http.response.start", "status": 503, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": body})

    def _start_now(self, exchange: HttpExchange, app: ASGIApp | None = None) -> None:
        # No work for a client that has disconnected.
        if not (self._has_hung_up or self.transport.is_closing()):
            self.start(exchange, app)
