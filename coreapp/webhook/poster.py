"""POSTs over kept-alive HTTP/1.1 connections, for little CPU: of the answer only the status matters.

Redirects are not followed, no cookies are kept. At most one request is on a connection at a time. The guard is asked
for each connection, not for each post: a kept one leads to an address that was checked.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import logging
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Protocol

import httptools

from tidings.egress import trust, urls
from tidings.egress.urls import Origin

log = logging.getLogger(__name__)

ANSWER_LIMIT = 64 * 1024  # bytes of an answer that are read so that the connection can be kept
MAX_IDLE = 64  # kept connections; they are as many as posts were in flight


class Connect(Protocol):
    """Makes the connections."""

    async def connect(self, host: str, port: int) -> socket.socket: ...


class Closed(ConnectionError):
    """The receiver closed the connection before it answered. unused: and before it had sent a single byte."""

    def __init__(self, *, unused: bool) -> None:
        super().__init__("the connection was closed before an answer came")
        self.unused = unused


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    origin: Origin
    head: bytes  # the request line, and the headers that are the same for every post


class Poster:
    """Posts JSON. Close it when it is no longer used."""

    def __init__(self, guard: Connect, *, timeout: float, tls: ssl.SSLContext | None = None) -> None:
        """timeout: seconds for one post, with the connection set-up."""
        self._guard = guard
        self._timeout = timeout
        self._tls = tls
        self._authorities = b""
        self._mistrust = ""
        self._idle: collections.deque[_Exchange] = collections.deque()

    def trust(self, authorities: bytes) -> None:
        """From now on check servers against these, PEM, or against the system's when empty.

        Of what cannot be loaded no server is trusted: every post over TLS fails, until there are others.
        """
        if authorities == self._authorities:
            return
        self._authorities = authorities
        self._mistrust = ""
        try:
            self._tls = trust.context(authorities) if authorities else None
        except (OSError, ValueError, TypeError) as error:
            self._tls = None
            self._mistrust = f"the authorities that are set for webhooks cannot be loaded: {error}"
            log.error("webhook.authorities_unusable", extra={"error": str(error)[:200]})
        # They were checked against others.
        self.close()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer.

        Raises `OSError` (`Forbidden` for where it must not go), `TimeoutError`, and `ValueError` for what is no URL or
        answer.

        A kept connection that turns out to be closed is replaced by a new one at once.
        """
        address = address_of(url)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        request = b"%s%sContent-Length: %d\r\n\r\n%s" % (address.head, lines.encode("latin-1"), len(body), body)
        async with asyncio.timeout(self._timeout):
            kept = self._take_idle(address.origin)
            if kept is not None:
                try:
                    return await self._exchange(kept, request)
                except Closed as closed:
                    if not closed.unused:
                        raise
            return await self._exchange(await self._connect(address.origin), request)

    def close(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            self._idle.pop().abort()

    def _take_idle(self, origin: Origin) -> _Exchange | None:
        while self._idle:
            exchange = self._idle.pop()
            if exchange.reusable and exchange.origin == origin:
                return exchange
            exchange.abort()
        return None

    async def _connect(self, origin: Origin) -> _Exchange:
        host, port, secure = origin
        if secure and self._mistrust:
            raise ssl.SSLError(self._mistrust)
        if secure and self._tls is None:
            self._tls = trust.context()
        sock = await self._guard.connect(host, port)
        try:
            _, exchange = await asyncio.get_running_loop().create_connection(
                lambda: _Exchange(origin),
                sock=sock,
                ssl=self._tls if secure else None,
                server_hostname=host if secure else None,
            )
        except BaseException:
            sock.close()
            raise
        return exchange

    async def _exchange(self, exchange: _Exchange, request: bytes) -> int:
        try:
            status = await exchange.send(request)
        except BaseException:
            exchange.abort()
            raise
        if exchange.reusable and len(self._idle) < MAX_IDLE:
            self._idle.append(exchange)
        else:
            exchange.abort()
        return status


class _Exchange(asyncio.Protocol):
    """One connection: a request, its answer, and so on."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.reusable = False
        # An `asyncio.Transport`, but for uvloop not an instance of it.
        self._transport: Any = None
        self._parser: Any = None
        self._answer: asyncio.Future[int] | None = None
        self._received = 0
        self._status = 0

    async def send(self, request: bytes) -> int:
        """The status, once the answer has been read to its end or to the limit."""
        self.reusable = False
        self._received = self._status = 0
        self._parser = httptools.HttpResponseParser(self)
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            raise Closed(unused=True)
        self._transport.write(request)
        return await self._answer

    def abort(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            # Nobody asked.
            self.abort()
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # After 101 it is no HTTP any more; the answer is here then.
            if not self._answer.done():
                self._answer.set_exception(ValueError(f"not an answer of HTTP/1.1: {error}"))
            return
        if self._received > ANSWER_LIMIT:
            self._end()

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()

    def on_message_complete(self) -> None:
        # 100 Continue and its like come before the answer; 101 is the last that is said in HTTP.
        if self._is_final() and self._answer is not None and not self._answer.done():
            self.reusable = self._status != 101 and bool(self._parser.should_keep_alive())
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        self._transport = None
        if self._is_final():
            # An answer may end with its connection.
            self._end()
        elif self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or Closed(unused=not self._received))

    def _end(self) -> None:
        if self._answer is not None and not self._answer.done() and self._is_final():
            self._answer.set_result(self._status)

    def _is_final(self) -> bool:
        return self._status >= 200 or self._status == 101


@functools.lru_cache(8)
def address_of(url: str) -> Address:
    """Where a URL leads, and the first lines of a request there. Raises `ValueError`."""
    place = urls.parse(url)
    lines = [
        f"POST {place.path} HTTP/1.1",
        f"Host: {place.named}",
        "Content-Type: application/json",
        "User-Agent: tidings",
    ]
    if place.authorization:
        lines.append(f"Authorization: {place.authorization}")
    return Address(place.origin, "\r\n".join([*lines, ""]).encode("latin-1"))
