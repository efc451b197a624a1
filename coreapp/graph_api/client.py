"""Client of the Graph API over kept-alive HTTP/1.1 connections, through the egress guard.

Its errors show whether the request may have had an effect: `NotPosted` before its first byte was sent,
`ResponseMissing` after it. A request is never repeated here.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import secrets
import ssl
import time
import urllib.parse
from collections.abc import AsyncIterable, Mapping

from tidings.egress import trust, urls
from tidings.egress.guard import EgressGuard
from tidings.egress.responses import BadResponse, ContentParser, EgressConnection, ReadCpuLimit
from tidings.egress.urls import Origin

RESPONSE_LIMIT = 256 * 1024  # bytes of a response
CONNECT_SECONDS = 10.0
RESPONSE_SECONDS = 30.0
UPLOAD_SECONDS = 600.0  # seconds for an upload, including its response
# Seconds after which an unused connection is not used again: a server may close it at any time then.
IDLE_SECONDS = 20.0
MAX_IDLE = 256  # kept connections


class NotPosted(Exception):
    """Nothing was sent, so the request may be repeated."""


class ResponseMissing(Exception):
    """The request was sent, at least in part, and no valid response came. Whether it had an effect is unknown."""


@dataclasses.dataclass(frozen=True, slots=True)
class CloudResponse:
    """Complete response."""

    status: int
    headers: Mapping[str, str]  # values by lower-case header name
    content: bytes


@dataclasses.dataclass(eq=False, repr=False)
class GraphClient:
    """Calls the Graph API. All shards of a number share one per process. Must be closed after use."""

    guard: EgressGuard
    _: dataclasses.KW_ONLY
    pace: ReadCpuLimit | None = None  # limit on the CPU of reads of long responses, which other clients may share
    tls: ssl.SSLContext | None = None  # context that verifies servers; None for the system's authorities
    connect_seconds: float = CONNECT_SECONDS
    response_seconds: float = RESPONSE_SECONDS

    def __post_init__(self) -> None:
        self._pace = self.pace or ReadCpuLimit()
        self._idle: collections.deque[tuple[float, _GraphConnection]] = collections.deque()

    async def post(self, url: str, token: str, body: bytes) -> CloudResponse:
        """Post a JSON body. Raises `NotPosted` and `ResponseMissing`."""
        return await self._call("POST", url, token, body, RESPONSE_LIMIT)

    async def post_bytes(self, url: str, token: str, content: bytes) -> CloudResponse:
        """Post the bytes of a resumable upload, from its start. Raises `NotPosted` and `ResponseMissing`."""
        head = {"Authorization": f"OAuth {token}", "Content-Type": "application/octet-stream", "file_offset": "0"}
        return await self._call("POST", url, token, content, RESPONSE_LIMIT, head)

    async def upload(
        self, url: str, token: str, form: FileForm, size: int, chunks: AsyncIterable[bytes]
    ) -> CloudResponse:
        """Post a file as a form, with bounded memory. Raises `NotPosted`, `ResponseMissing`, and errors of `chunks`.

        size: bytes of the file
        """
        before, after = form.parts()
        try:
            target = urls.parse(url)
            length = len(before) + size + len(after)
            head = _request("POST", target, token, length, {"Content-Type": form.content_type}) + before
        except ValueError as error:
            raise NotPosted(str(error)) from None
        connection = await self._connect(target.origin)
        try:
            async with asyncio.timeout(UPLOAD_SECONDS):
                await connection.stream(head, chunks, after, limit=RESPONSE_LIMIT)
            return self._response_of(connection, RESPONSE_LIMIT)
        except TimeoutError:
            raise ResponseMissing(f"no response within {UPLOAD_SECONDS:g} s") from None
        except StreamCut as error:
            raise ResponseMissing(str(error)) from None
        finally:
            if connection.is_lost or not connection.is_reusable:
                connection.abort()

    async def get(self, url: str, token: str, *, limit: int = RESPONSE_LIMIT) -> CloudResponse:
        """Get an object. Raises `NotPosted` and `ResponseMissing`.

        limit: bytes of the response
        """
        return await self._call("GET", url, token, b"", limit)

    async def delete(self, url: str, token: str) -> CloudResponse:
        """Delete an object. Raises `NotPosted` and `ResponseMissing`."""
        return await self._call("DELETE", url, token, b"", RESPONSE_LIMIT)

    def close(self) -> None:
        """Close the kept connections."""
        while self._idle:
            self._idle.pop()[1].abort()

    async def _call(
        self, method: str, url: str, token: str, body: bytes, limit: int, headers: Mapping[str, str] | None = None
    ) -> CloudResponse:
        try:
            target = urls.parse(url)
            length = len(body) if method == "POST" else None
            request = _request(method, target, token, length, headers or {}) + body
        except ValueError as error:
            raise NotPosted(str(error)) from None
        connection = self._take_idle(target.origin)
        if connection is None:
            connection = await self._connect(target.origin)
        if not connection.is_usable:
            connection.abort()
            raise NotPosted("the connection was closed before the request")
        try:
            async with asyncio.timeout(self.response_seconds):
                await connection.request(request, limit=limit)
        except TimeoutError:
            raise ResponseMissing(f"no response within {self.response_seconds:g} s") from None
        except OSError as error:
            raise ResponseMissing(str(error) or type(error).__name__) from None
        return self._response_of(connection, limit)

    def _response_of(self, connection: _GraphConnection, limit: int) -> CloudResponse:
        """Read the response, and keep the connection for the next request. Raises `ResponseMissing`."""
        parser = connection.content
        if not parser.is_complete or parser.size > limit:
            connection.abort()
            raise ResponseMissing("the response is too long, or broke off")
        response = CloudResponse(parser.status, parser.headers, parser.take_content())
        if connection.is_reusable and len(self._idle) < MAX_IDLE:
            self._idle.append((time.monotonic(), connection))
        else:
            connection.abort()
        return response

    def _take_idle(self, origin: Origin) -> _GraphConnection | None:
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_reusable and connection.origin == origin and time.monotonic() - since < IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin) -> _GraphConnection:
        host, port, secure = origin
        connection = _GraphConnection(origin, self._pace)
        try:
            async with asyncio.timeout(self.connect_seconds):
                if secure and self.tls is None:
                    self.tls = trust.context()
                await connection.open(await self.guard.connect(host, port), host, self.tls if secure else None)
        except TimeoutError:
            connection.abort()
            raise NotPosted(f"no connection to {host} within {self.connect_seconds:g} s") from None
        except (OSError, ValueError) as error:
            connection.abort()
            raise NotPosted(str(error) or type(error).__name__) from None
        return connection


class StreamCut(ConnectionError):
    """The connection ended during an upload, or before a valid response."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileForm:
    """Form with one file, and text fields before it."""

    fields: Mapping[str, str]
    filename: str
    mime_type: str
    boundary: str = dataclasses.field(default_factory=lambda: f"tidings-{secrets.token_hex(16)}")

    @property
    def content_type(self) -> str:
        return f"multipart/form-data; boundary={self.boundary}"

    def parts(self) -> tuple[bytes, bytes]:
        """Return the bytes before and after the file."""
        texts = "".join(
            f'--{self.boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in self.fields.items()
        )
        name = urllib.parse.quote(self.filename, safe=" ")
        before = (
            f'{texts}--{self.boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            f"Content-Type: {self.mime_type}\r\n\r\n"
        )
        return before.encode(), f"\r\n--{self.boundary}--\r\n".encode()


class _GraphConnection(EgressConnection):
    """Connection for one request after another."""

    def __init__(self, origin: Origin, pace: ReadCpuLimit) -> None:
        self.content = ContentParser()
        super().__init__(self.content, pace)
        self.origin = origin
        self._writable = asyncio.Event()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        super().connection_lost(exc)

    async def stream(self, head: bytes, chunks: AsyncIterable[bytes], end: bytes, *, limit: int) -> None:
        """Send a request in pieces, and read its response as `ask` does. Stops sending when a response arrives before
        the end. Raises `StreamCut`, and the errors of `chunks`.
        """
        is_whole = False
        try:
            response = self.send(head)
            async for chunk in chunks:
                await self._writable.wait()
                if response.done() or self.is_lost:
                    break
                self._transport.write(chunk)
            else:
                if not response.done() and not self.is_lost:
                    self._transport.write(end)
                    is_whole = True
            await response
            while not self.parser.is_complete and not (
                self.parser.is_headed and (self.is_lost or self.parser.size > limit)
            ):
                await self.read()
        except (BadResponse, ConnectionError) as error:
            raise StreamCut(str(error) or type(error).__name__) from None
        finally:
            if not is_whole:
                # The server takes what comes next for the rest of this request.
                self.parser.keep_alive = False


def _request(method: str, target: urls.HttpTarget, token: str, length: int | None, headers: Mapping[str, str]) -> bytes:
    """Return the head of a request. Raises `ValueError` for a token that no header can have.

    length: bytes of the body; None for no body
    headers: further ones, and other values of the usual ones
    """
    usual = {
        "Host": target.named,
        "Authorization": f"Bearer {token}",
        "User-Agent": "tidings",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
    }
    if length is not None:
        usual |= {"Content-Type": "application/json", "Content-Length": str(length)}
    if not token.isascii() or not token.isprintable():
        raise ValueError("the access token has characters that no header can have")
    lines = [f"{name}: {value}" for name, value in {**usual, **headers}.items()]
    return "\r\n".join([f"{method} {target.path} HTTP/1.1", *lines, "", ""]).encode("latin-1")
