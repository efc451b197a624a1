"""POSTs over kept-alive HTTP/1.1 connections, for little CPU: of the answer only the status matters.

Redirects are not followed, no cookies are kept. At most one request is on a connection at a time. The guard is asked
for each connection, not for each post: a kept one leads to an address that was checked. Responses are bounded by
`tidings.egress.responses`.
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
from typing import Protocol

from tidings.egress import trust, urls
from tidings.egress.responses import Connection, ReadPace, ResponseParser
from tidings.egress.urls import Origin

log = logging.getLogger(__name__)

RESPONSE_LIMIT = 64 * 1024  # bytes of a response that are read so that the connection can be kept
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

    def __init__(
        self, guard: Connect, *, timeout: float, tls: ssl.SSLContext | None = None, pace: ReadPace | None = None
    ) -> None:
        """timeout: seconds for one post, with the connection set-up.

        pace: of reads of long responses, which other posters may share.
        """
        self._guard = guard
        self._timeout = timeout
        self._pace = pace or ReadPace()
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

        Raises `OSError` (`Forbidden` for where it must not go, `BadResponse` for what is no response or one beyond the
        limits), `TimeoutError`, and `ValueError` for what is no URL.

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
        exchange = _Exchange(origin, self._pace)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: exchange.connection,
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


class _Exchange:
    """One connection: a request, its response, and so on.

    reusable: whether it may be used for another request.
    """

    def __init__(self, origin: Origin, pace: ReadPace) -> None:
        self.origin = origin
        self._parser = ResponseParser()
        self.connection = Connection(self._parser, pace)

    @property
    def reusable(self) -> bool:
        return self._parser.keep_alive and self.connection.is_usable

    async def send(self, request: bytes) -> int:
        """The status, once the response has been read to its end or to the limit. Raises `OSError`."""
        connection, parser = self.connection, self._parser
        if not connection.is_usable:
            raise Closed(unused=True)
        await connection.send(request)
        while not parser.is_complete:
            if parser.is_headed and (connection.is_lost or parser.size > RESPONSE_LIMIT):
                # A response may end with its connection.
                break
            if connection.is_lost:
                raise connection.error or Closed(unused=not parser.size)
            await connection.read()
        return parser.status

    def abort(self) -> None:
        self.connection.abort()


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
