"""Client of the Graph API over kept-alive HTTP/1.1 connections, through the egress guard.

Its errors tell whether the request may have had an effect: `NotPosted` before its first byte was sent, `AnswerMissing`
after it. A request is never repeated here.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import ssl
import time
from collections.abc import Mapping

from tidings.egress import trust, urls
from tidings.egress.guard import EgressGuard
from tidings.egress.responses import ContentParser, EgressConnection, ReadCpuLimit
from tidings.egress.urls import Origin

RESPONSE_LIMIT = 256 * 1024  # bytes of a response
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
# Seconds after which an unused connection is not used again: a server may close it at any time then.
IDLE_SECONDS = 20.0
MAX_IDLE = 256  # kept connections


class NotPosted(Exception):
    """Nothing was sent, so the request may be repeated."""


class AnswerMissing(Exception):
    """The request was sent, at least in part, and no valid response came. Whether it had an effect is unknown."""


@dataclasses.dataclass(frozen=True, slots=True)
class CloudResponse:
    """Complete response."""

    status: int
    headers: Mapping[str, str]  # by lower-case name
    content: bytes


@dataclasses.dataclass(eq=False, repr=False)
class GraphClient:
    """Calls the Graph API. All shards of a number share one per process. Must be closed after use."""

    guard: EgressGuard
    _: dataclasses.KW_ONLY
    pace: ReadCpuLimit | None = None  # limit on the CPU of reads of long responses, which other clients may share
    tls: ssl.SSLContext | None = None  # context that verifies servers; None for the system's authorities
    connect_seconds: float = CONNECT_SECONDS
    answer_seconds: float = ANSWER_SECONDS

    def __post_init__(self) -> None:
        self._pace = self.pace or ReadCpuLimit()
        self._idle: collections.deque[tuple[float, _GraphConnection]] = collections.deque()

    async def post(self, url: str, token: str, body: bytes) -> CloudResponse:
        """Post a JSON body. Raises `NotPosted` and `AnswerMissing`."""
        return await self._call("POST", url, token, body)

    async def get(self, url: str, token: str) -> CloudResponse:
        """Get an object. Raises `NotPosted` and `AnswerMissing`."""
        return await self._call("GET", url, token, b"")

    def close(self) -> None:
        """Close the kept connections."""
        while self._idle:
            self._idle.pop()[1].abort()

    async def _call(self, method: str, url: str, token: str, body: bytes) -> CloudResponse:
        try:
            target = urls.parse(url)
            request = _request(method, target, token, body)
        except ValueError as error:
            raise NotPosted(str(error)) from None
        connection = self._take_idle(target.origin)
        if connection is None:
            connection = await self._connect(target.origin)
        if not connection.is_usable:
            connection.abort()
            raise NotPosted("the connection was closed before the request")
        try:
            async with asyncio.timeout(self.answer_seconds):
                await connection.ask(request, limit=RESPONSE_LIMIT)
        except TimeoutError:
            connection.abort()
            raise AnswerMissing(f"no answer within {self.answer_seconds:g} s") from None
        except OSError as error:
            connection.abort()
            raise AnswerMissing(str(error) or type(error).__name__) from None
        except BaseException:
            connection.abort()
            raise
        return self._answered(connection)

    def _answered(self, connection: _GraphConnection) -> CloudResponse:
        """Return the response, and keep the connection for the next request. Raises `AnswerMissing`."""
        parser = connection.content
        if not parser.is_complete or parser.size > RESPONSE_LIMIT:
            connection.abort()
            raise AnswerMissing("the response is too long, or broke off")
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


class _GraphConnection(EgressConnection):
    """Connection for one request after another."""

    def __init__(self, origin: Origin, pace: ReadCpuLimit) -> None:
        self.content = ContentParser()
        super().__init__(self.content, pace)
        self.origin = origin


def _request(method: str, target: urls.HttpTarget, token: str, body: bytes) -> bytes:
    """Return the bytes of a request. Raises `ValueError` for a token that no header can have."""
    lines = [
        f"{method} {target.path} HTTP/1.1",
        f"Host: {target.named}",
        f"Authorization: Bearer {token}",
        "User-Agent: tidings",
        "Accept: application/json",
        "Accept-Encoding: identity",
    ]
    if method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    if not token.isascii() or not token.isprintable():
        raise ValueError("the access token has characters that no header can have")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
