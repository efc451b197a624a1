"""POSTs over kept-alive HTTP/1.1 connections at low CPU cost. Of a response, the status and an excerpt are used.

Redirects are not followed, and no cookies are stored. A connection has at most one request at a time. The egress guard
is called for each connection, not for each post: a kept connection leads to an address that was checked. Responses are
bounded by `tidings.egress.responses`.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tidings.egress import trust, urls
from tidings.egress.guard import EgressGuard
from tidings.egress.responses import ConnectionClosedEarly, EgressConnection, ReadCpuLimit, ResponseParser
from tidings.egress.urls import Origin

log = logging.getLogger(__name__)

RESPONSE_LIMIT = 64 * 1024  # bytes of a response that are read to keep the connection
MAX_IDLE = 64  # kept connections; there are at most as many as posts were in flight
EXCERPT_BYTES = 1024  # first bytes of the content of a response that callers may keep


@dataclasses.dataclass(frozen=True, slots=True)
class ReceiverAddress:
    origin: Origin
    head: bytes  # request line, and the headers that are the same for every post


@dataclasses.dataclass(eq=False, repr=False)
class Poster:
    """Posts JSON. Must be closed after use."""

    guard: EgressGuard
    _: dataclasses.KW_ONLY
    timeout: float
    tls: ssl.SSLContext | None = None
    pace: ReadCpuLimit | None = None  # CPU limit on reads of long responses, may be shared
    # file of certificate revocation lists, read again when it has changed; None for no check
    revocations: Path | None = None
    user_agent: str = "tidings"

    def __post_init__(self) -> None:
        self._seen: tuple[int, ...] | None = None
        self._pace = self.pace or ReadCpuLimit()
        self._limit = TimeLimit(self.timeout)
        self._authorities = b""
        self._trust_error = ""
        # Increases when servers are verified against other certificates or lists: earlier connections are not kept.
        self._generation = 0
        self._idle: collections.deque[_KeptConnection] = collections.deque()

    def trust(self, authorities: bytes) -> None:
        """Verify servers against these certificates, PEM; empty for those of the system.

        If they cannot be loaded, no server is trusted: every post over TLS fails until there are others.
        """
        if authorities == self._authorities:
            return
        self._authorities = authorities
        self._load()

    def _load(self) -> None:
        self._trust_error = ""
        self._generation += 1
        try:
            is_plain = not self._authorities and self.revocations is None
            self.tls = None if is_plain else trust.context(self._authorities, self.revocations)
        except (OSError, ValueError, TypeError) as error:
            self.tls = None
            lists = f" or the revocation lists of {self.revocations}" if self.revocations is not None else ""
            self._trust_error = f"the CA certificates for webhooks{lists} cannot be loaded: {error}"
            log.error("webhook.authorities_unusable", extra={"error": str(error)[:200]})
        # Their servers were verified against other certificates.
        self.close()

    def _follow_revocations(self, revocations: Path) -> None:
        """Read the revocation lists again if their file has changed. If it cannot be read, no server is trusted."""
        seen: tuple[int, ...] = ()
        try:
            found = revocations.stat()
            # The change time, because other rights make an unreadable file readable.
            seen = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
        except OSError:
            pass
        if seen != self._seen:
            self._seen = seen
            self._load()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, excerpt: bytearray | None = None) -> int:
        """Post a body and return the status of the response. A kept connection that is found closed is replaced at
        once.

        Raises `OSError` (`Forbidden` for a destination that is not allowed, `BadResponse` for an invalid or too long
        response), `TimeoutError`, and `ValueError` for an invalid URL.

        excerpt: set to the first `EXCERPT_BYTES` bytes of the response's content; None if they are not wanted
        """
        address = address_of(url, self.user_agent)
        if self.revocations is not None:
            self._follow_revocations(self.revocations)
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        request = b"%s%sContent-Length: %d\r\n\r\n%s" % (address.head, lines.encode("latin-1"), len(body), body)
        with self._limit:
            connection = await self._exchange(address.origin, request)
        # The status is known. It counts, however long the rest of the response delays the next post.
        if not self._keep(connection, excerpt):
            await connection.drop_rest()
        return connection.parser.status

    def close(self) -> None:
        """Close the kept connections."""
        while self._idle:
            self._idle.pop().abort()

    def _take_idle(self, origin: Origin) -> _KeptConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and connection.origin == origin:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin) -> _KeptConnection:
        host, port, secure = origin
        if secure and self._trust_error:
            raise ssl.SSLError(self._trust_error)
        if secure and self.tls is None:
            self.tls = trust.context()
        connection = _KeptConnection(origin, self._generation, self._pace)
        await connection.open(await self.guard.connect(host, port), host, self.tls if secure else None)
        return connection

    async def _exchange(self, origin: Origin, request: bytes) -> _KeptConnection:
        """Send a request. Returns the connection with the response."""
        kept = self._take_idle(origin)
        if kept is not None:
            try:
                await kept.request(request, limit=RESPONSE_LIMIT)
                return kept
            except ConnectionClosedEarly as closed:
                if not closed.unused:
                    raise
        connection = await self._connect(origin)
        await connection.request(request, limit=RESPONSE_LIMIT)
        return connection

    def _keep(self, connection: _KeptConnection, excerpt: bytearray | None) -> bool:
        """Keep or close a connection with a response. Returns False if the rest of the response is to be dropped."""
        if pieces := connection.pieces:
            if excerpt is not None:
                excerpt[:] = b"".join(pieces[:EXCERPT_BYTES])[:EXCERPT_BYTES]
            pieces.clear()
        if connection.is_reusable and connection.generation == self._generation and len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        elif connection.parser.is_complete or connection.is_lost:
            connection.abort()
        else:
            return False
        return True


class TimeLimit:
    """Cancels blocks of code that take longer than `seconds`, as `asyncio.timeout` does: they raise `TimeoutError`.

    Use `with limit:` in a task; a task is in at most one block of a limit. All blocks share one timer, since the oldest
    of them ends first: starting and cancelling a timer for each takes 3.5 µs, which is a tenth of a post.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # For each task in a block, the oldest block first: its end as event-loop time, and the requests to cancel the
        # task that it had at the start.
        self._blocks: dict[asyncio.Task[object], tuple[float, int]] = {}
        # Tasks whose block was cancelled, with those requests.
        self._expired: dict[asyncio.Task[object], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit needs a task")
        loop = task.get_loop()
        at = loop.time() + self._seconds
        self._blocks[task] = at, task.cancelling()
        if self._timer is None:
            self._timer = loop.call_at(at, self._check)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._blocks.pop(task, None) is not None:
            return
        requests = self._expired.pop(task)
        if task.uncancel() <= requests and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _check(self) -> None:
        """Cancel the blocks whose time is over, and start the timer for the oldest of the others."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._blocks:
            task, (at, requests) = next(iter(self._blocks.items()))
            if at > now:
                self._timer = loop.call_at(at, self._check)
                return
            del self._blocks[task]
            self._expired[task] = requests
            task.cancel()


class _PiecesParser(ResponseParser):
    """Parses responses and keeps their content in pieces."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        # Called for each chunk, of which a response may have some thousand: a Python function would take twice the CPU
        # of parsing them.
        self.on_body = self.pieces.append
        super().__init__()


class _KeptConnection(EgressConnection):
    """Connection for one request after another."""

    def __init__(self, origin: Origin, generation: int, pace: ReadCpuLimit) -> None:
        parser = _PiecesParser()
        super().__init__(parser, pace)
        self.pieces = parser.pieces  # content of the response; the reader clears it
        self.origin = origin
        self.generation = generation  # generation of the certificates in `Poster`


@functools.lru_cache(8)
def address_of(url: str, user_agent: str = "tidings") -> ReceiverAddress:
    """Return the origin of a URL, and the first lines of a request to it. Raises `ValueError`."""
    place = urls.parse(url)
    lines = [
        f"POST {place.path} HTTP/1.1",
        f"Host: {place.named}",
        "Content-Type: application/json",
        f"User-Agent: {user_agent}",
    ]
    if place.authorization:
        lines.append(f"Authorization: {place.authorization}")
    return ReceiverAddress(place.origin, "\r\n".join([*lines, ""]).encode("latin-1"))
