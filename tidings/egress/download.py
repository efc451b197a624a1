"""Download of a file by its URL: streamed through the egress guard, with limits on bytes and seconds.

Each download is one request on a new connection. Redirects are not followed and no cookies are kept, so the request
headers reach only the URL's host.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator, Mapping

from tidings.egress import trust, urls
from tidings.egress.guard import EgressGuard
from tidings.egress.responses import ContentParser, EgressConnection, ReadCpuLimit


class DownloadTooLarge(Exception):
    """The file has more bytes than the caller accepts: ask for a smaller one."""


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class DownloadResponse:
    """Response whose head has arrived."""

    connection: EgressConnection
    parser: ContentParser
    limit: int  # bytes of the body

    @property
    def status(self) -> int:
        """HTTP status, also 3xx, as no redirect is followed, and 101, whose body is empty."""
        return self.parser.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Response headers by lower-case name; of several with one name, the last."""
        return self.parser.headers

    @property
    def length(self) -> int | None:
        """Bytes of the body that the server declared; `None` when it declared none."""
        return self.parser.length

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body, once; the content of one read comes in one piece.

        Raises `DownloadTooLarge` before more than the limit was yielded, `BadResponse` when the body is cut off or
        exceeds the limits on responses, and `OSError`.
        """
        received = 0
        while True:
            piece = self.parser.take_content()
            received += len(piece)
            if received > self.limit:
                raise DownloadTooLarge(f"more than {self.limit} bytes")
            if piece:
                yield piece
            if self.parser.is_complete:
                return
            await self.connection.read()


class Downloader:
    """Downloads files from hosts that others name. Keeps nothing between two calls."""

    def __init__(
        self, guard: EgressGuard, tls: ssl.SSLContext | None = None, *, cpu_limit: ReadCpuLimit | None = None
    ) -> None:
        """tls: context that verifies servers; `None` for the system's authorities.
        cpu_limit: limit on the CPU of reads, which other downloaders may share; `None` for a separate one.
        """
        self._guard = guard
        self._tls = tls
        self._cpu_limit = cpu_limit or ReadCpuLimit()

    @contextlib.asynccontextmanager
    async def fetch(
        self, url: str, headers: Mapping[str, str] | None = None, *, limit: int, seconds: float
    ) -> AsyncIterator[DownloadResponse]:
        """GET `url` and provide its response, once the head has arrived; `chunks()` gives the body inside the block.

        Raises `ValueError` for an invalid URL, `Forbidden`, `DownloadTooLarge`, `TimeoutError`, and `OSError`.

        headers: request headers, such as `Authorization`, which overrides a user in the URL.
        limit: bytes of the body.
        seconds: for everything, including the block.
        """
        target = urls.parse(url)
        request = _request(target, headers or {})
        host, port, secure = target.origin
        if secure and self._tls is None:
            self._tls = trust.context()
        async with asyncio.timeout(seconds):
            parser = ContentParser()
            connection = EgressConnection(parser, self._cpu_limit)
            try:
                await connection.open(await self._guard.connect(host, port), host, self._tls if secure else None)
                await connection.request(request)
                response = DownloadResponse(connection, parser, limit)
                if response.length is not None and response.length > limit:
                    raise DownloadTooLarge(f"{response.length} bytes, more than {limit}")
                yield response
            finally:
                connection.abort()


def _request(target: urls.HttpTarget, headers: Mapping[str, str]) -> bytes:
    own = {"User-Agent": "tidings", "Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}
    if target.authorization:
        own["Authorization"] = target.authorization
    own |= headers
    lines = [
        f"GET {target.path} HTTP/1.1",
        f"Host: {target.named}",
        *(f"{name}: {value}" for name, value in own.items()),
    ]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header has a line break")
    try:
        return "\r\n".join([*lines, "", ""]).encode("latin-1")
    except UnicodeError:
        raise ValueError("a header has characters outside latin-1") from None
