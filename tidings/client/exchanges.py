"""HTTP/1.1 to one server over kept-alive connections, for little CPU: one request at a time on each of them.

Redirects are not followed, no cookies are kept, the environment's proxies are not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httptools

from tidings.client.errors import NetworkAway, NetworkSilent, NetworkUnreached

HEAD_LIMIT = 64 * 1024  # bytes of an answer's head
UNREAD = 256 * 1024  # bytes of an answer's body that wait for its reader; nothing more is taken from the connection
# Seconds.
CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 30.0  # of these without a byte, unless something else is asked for
KEPT_SECONDS = 4.0  # that an idle connection is kept: less than the network does, which would close it under a call


class Exchange(asyncio.Protocol):
    """One connection: a request, its answer, and so on.

    status: of the answer; headers: its own, names in lower case, of several the last; is_reusable: may another request
    follow?
    """

    def __init__(self, where: str) -> None:
        """where: the server, as it is named in errors."""
        self._where = where
        # An `asyncio.Transport`, but for uvloop not an instance of it.
        self._transport: Any = None
        self._parser: Any = None
        self._changed: asyncio.Future[None] | None = None
        self._closed = ""  # why
        self._is_full = self._is_paused = False
        self._pieces: list[bytes] = []
        self._unread = 0
        self._received = 0
        self._is_headed = self._is_complete = self._is_cut = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_reusable = False
        self.idle_since = 0.0
        self._silence = SILENCE_SECONDS

    async def send(self, head: bytes, body: AsyncIterator[bytes] | None, *, silence: float) -> None:
        """Send a request; the head of its answer is here when this returns, if need be before the end of the body.

        silence: seconds without a byte after which the server is given up.
        Raises `NetworkAway`, and what the body raises.
        """
        self._silence = silence
        self._parser = httptools.HttpResponseParser(self)
        self._pieces, self._unread, self._received = [], 0, 0
        self._is_headed = self._is_complete = self.is_reusable = False
        self._transport.write(head)
        if body is not None:
            async for chunk in body:
                if self._is_headed or self._closed:
                    # It is answered without the rest, behind which nothing else can follow.
                    self._is_cut, self.is_reusable = True, False
                    break
                self._transport.write(chunk)
                while self._is_full and not self._is_headed:
                    await self._wait()
        while not self._is_headed:
            await self._wait()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The answer's body, to be read once. Raises `NetworkAway` when it is cut off."""
        while True:
            pieces, self._pieces, self._unread = self._pieces, [], 0
            if self._is_paused and not self._closed:
                self._is_paused = False
                self._transport.resume_reading()
            for piece in pieces:
                yield piece
            if self._pieces:
                continue
            if self._is_complete:
                return
            await self._wait()

    async def read(self) -> bytes:
        """All of the answer's body. Raises as `chunks`."""
        return b"".join([chunk async for chunk in self.chunks()])

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        """Until anything has happened. Raises `NetworkSilent`, and `NetworkAway` once the connection is closed."""
        if self._closed:
            raise NetworkAway(f"{self._where} ({self._closed})")
        self._changed = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._silence):
                await self._changed
        except TimeoutError as error:
            raise NetworkSilent(f"{self._where} (nothing for {self._silence:g} s)") from error
        finally:
            self._changed = None

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _end(self, why: str) -> None:
        """Use the connection for nothing else."""
        self.is_reusable = False
        self._closed = self._closed or why
        self._transport.close()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._is_complete:
            # Nobody asked.
            self.abort()
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._end(f"not an answer of HTTP/1.1: {error}")
        if self._received > HEAD_LIMIT and not self._is_headed:
            self._end("the head of the answer is too long")
        if self._unread > UNREAD and not self._is_paused and not self._closed:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_reusable = False
        is_bounded = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self._is_headed and not is_bounded:
            # An answer may end with its connection.
            self._is_complete = True
        self._closed = self._closed or f"the connection was closed: {exc or 'too early'}"
        self._wake()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise ValueError("there is another answer behind it")
        self.status, self.headers = 0, {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        # 100 Continue and its like come before the answer.
        self._is_headed = self.status >= 200

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._unread += len(body)

    def on_message_complete(self) -> None:
        if self._is_headed:
            self._is_complete = True
            # With bytes that wait for their reader it is not worth it.
            is_kept = bool(self._parser.should_keep_alive()) and not self._is_paused
            self.is_reusable = is_kept and not self._is_cut and not self._closed


class HttpClient:
    """Requests to one server, over at most so many connections; one more request waits for one of them."""

    def __init__(self, url: str, *, tls: ssl.SSLContext | None, connections: int) -> None:
        """url: what goes before every path; tls: how the server is checked, for a URL of HTTPS."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port or (443 if secure else 80)
        self._prefix = parts.path.rstrip("/")
        self._own = f"Host: {parts.netloc.rpartition('@')[2]}\r\nUser-Agent: tidings\r\nAccept-Encoding: identity\r\n"
        self._tls = tls if secure else None
        self._where = f"no answer from the network at {url}"
        self._places = asyncio.Semaphore(connections)
        self._idle: list[Exchange] = []

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        content: bytes = b"",
        body: AsyncIterator[bytes] | None = None,
        silence: float | None = None,
    ) -> AsyncIterator[Exchange]:
        """The answer as soon as its head is here; what is not read of it by the end of the block is dropped.

        content: what the request has, or body, whose length the headers say; silence: seconds, as in `Exchange.send`.
        Raises `NetworkUnreached` where nothing was asked, `NetworkAway`, and what the body raises.
        """
        if body is None:
            headers = {**headers, "Content-Length": str(len(content))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
            raise ValueError("a header has a line break")
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._own}{lines}\r\n".encode("latin-1")
        async with self._places:
            exchange = self._take_idle() or await self._connect()
            try:
                await exchange.send(head + content, body, silence=SILENCE_SECONDS if silence is None else silence)
                yield exchange
            finally:
                if exchange.is_reusable:
                    exchange.idle_since = asyncio.get_running_loop().time()
                    self._idle.append(exchange)
                else:
                    exchange.abort()

    def close(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            self._idle.pop().abort()

    def _take_idle(self) -> Exchange | None:
        until = asyncio.get_running_loop().time() - KEPT_SECONDS
        while self._idle:
            exchange = self._idle.pop()
            if exchange.is_reusable and exchange.idle_since > until:
                return exchange
            exchange.abort()
        return None

    async def _connect(self) -> Exchange:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, exchange = await asyncio.get_running_loop().create_connection(
                    lambda: Exchange(self._where), self._host, self._port, ssl=self._tls
                )
        except (OSError, TimeoutError) as error:
            raise NetworkUnreached(f"{self._where} ({str(error) or type(error).__name__})") from error
        return exchange
