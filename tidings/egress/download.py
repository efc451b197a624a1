"""Fetching a file by its URL: streamed, with a limit of bytes and seconds, through the guard.

One request over a connection of its own. Redirects are not followed and no cookies are kept, so what is in the headers
reaches the URL's host and nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping

import httptools

from tidings.egress import trust, urls
from tidings.egress.guard import EgressGuard

HEAD_LIMIT = 64 * 1024  # bytes of an answer's head
PIECE = 64 * 1024  # bytes that are read at once


class DownloadTooLarge(Exception):
    """The file has more bytes than the caller has room for: ask for a smaller one."""


class BadAnswer(ConnectionError):
    """Not an answer of HTTP, or its connection ended too early: try again later."""


class DownloadAnswer:
    """Answer whose head has arrived.

    status: of HTTP, also 3xx: no redirect is followed; also 101, whose body is empty.
    headers: names in lower case; of several the last.
    length: bytes of the body that the server announced, `None` when it did not.
    """

    def __init__(self, reader: asyncio.StreamReader, limit: int) -> None:
        self._reader = reader
        self._limit = limit
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._headed = self._complete = False
        self._received = 0
        self.status = 0
        self.headers: dict[str, str] = {}

    @property
    def length(self) -> int | None:
        declared = self.headers.get("content-length", "")
        return int(declared) if declared.isascii() and declared.isdigit() else None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, to be read once.

        Raises `DownloadTooLarge` before more than the limit was given, `BadAnswer` when it is cut off, and `OSError`.
        """
        silent = 0  # bytes that were no part of the body
        while True:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                self._received += len(piece)
                if self._received > self._limit:
                    raise DownloadTooLarge(f"more than {self._limit} bytes")
                yield piece
            if self._complete:
                return
            silent = 0 if pieces else silent
            size = await self._feed()
            silent += size
            if silent > HEAD_LIMIT + PIECE:
                raise BadAnswer("what comes instead of the file is too long")
            if not size:
                if self.length is not None or "chunked" in self.headers.get("transfer-encoding", "").lower():
                    raise BadAnswer("the connection was closed before the end of the file")
                self._complete = True

    async def _head(self) -> None:
        received = 0
        while not self._headed:
            size = await self._feed()
            received += size
            if not size:
                raise BadAnswer("the connection was closed before an answer came")
            if received > HEAD_LIMIT and not self._headed:
                raise BadAnswer("the head of the answer is too long")
        if self.length is not None and self.length > self._limit:
            raise DownloadTooLarge(f"{self.length} bytes, more than {self._limit}")

    async def _feed(self) -> int:
        data = await self._reader.read(PIECE)
        if data:
            try:
                self._parser.feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
                # What follows a complete answer is of no interest.
                if not self._complete:
                    raise BadAnswer(f"not an answer of HTTP/1.1: {error}") from error
        return len(data)

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._headed:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        # After 101 it is no HTTP any more: there will be no other answer.
        self._headed = self.status >= 200 or self.status == 101

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._headed:
            self._complete = True
        else:
            # 100 Continue and its like come before the answer.
            self.headers.clear()


class Downloader:
    """Fetches files from hosts that others name. Keeps nothing between two calls."""

    def __init__(self, guard: EgressGuard, tls: ssl.SSLContext | None = None) -> None:
        """tls: how servers are checked; by default against the system's authorities."""
        self._guard = guard
        self._tls = tls

    @contextlib.asynccontextmanager
    async def fetch(
        self, url: str, headers: Mapping[str, str] | None = None, *, limit: int, seconds: float
    ) -> AsyncIterator[DownloadAnswer]:
        """GET `url`: its answer once the head has arrived; the body comes from `chunks()` inside the block.

        headers: for instance `Authorization`, which wins over a user in the URL. limit: bytes of the body; seconds:
        for everything, the block included.
        Raises `ValueError` for no URL, `Forbidden`, `DownloadTooLarge`, `TimeoutError`, and `OSError`.
        """
        place = urls.parse(url)
        request = _request(place, headers or {})
        async with asyncio.timeout(seconds):
            reader, writer = await self._open(place)
            try:
                writer.write(request)
                await writer.drain()
                download = DownloadAnswer(reader, limit)
                await download._head()
                yield download
            finally:
                writer.transport.abort()

    async def _open(self, place: urls.Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port, secure = place.origin
        if secure and self._tls is None:
            self._tls = trust.context()
        sock = await self._guard.connect(host, port)
        try:
            return await asyncio.open_connection(
                sock=sock, ssl=self._tls if secure else None, server_hostname=host if secure else None, limit=PIECE
            )
        except BaseException:
            sock.close()
            raise


def _request(place: urls.Place, headers: Mapping[str, str]) -> bytes:
    own = {"User-Agent": "tidings", "Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}
    if place.authorization:
        own["Authorization"] = place.authorization
    own |= headers
    lines = [f"GET {place.path} HTTP/1.1", f"Host: {place.named}", *(f"{name}: {value}" for name, value in own.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header has a line break")
    try:
        return "\r\n".join([*lines, "", ""]).encode("latin-1")
    except UnicodeError:
        raise ValueError("a header has letters beyond latin-1") from None
