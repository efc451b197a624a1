"""HTTP/1.1 connections to hosts that others name (webhooks, media hosts, proxies), with a bounded reader of responses.

A hostile response costs a bounded amount of memory, CPU and time on the event loop, whatever its form. `ResponseParser`
bounds the head and the interim responses, `ContentParser` the overhead of the body as well, and `EgressConnection` the
reads.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from typing import Any

import httptools

# Bytes of one response head.
MAX_HEAD = 32 * 1024
# Headers of one response head, and as many trailers where content is kept.
MAX_HEADERS = 100
# Interim responses (status 1xx other than 101) before the response.
MAX_INTERIM = 8
# Bytes of a body that are not content (chunk sizes, chunk extensions, trailers), in addition to as many as the content.
MAX_OVERHEAD = 64 * 1024
# Chunks of a body: `MAX_CHUNKS`, and one more for each `CHUNK_BYTES` bytes of content.
MAX_CHUNKS, CHUNK_BYTES = 4096, 64
# Reads of one response that are never delayed. An honest response to a POST takes one or two.
FREE_READS = 8
# Share of one core for all further reads of one `ReadCpuLimit`, and for those after which the rest of a response is
# dropped; and the seconds of unused share that may accumulate.
READ_SHARE, SAVED_SECONDS = 0.04, 0.5
# CPU seconds of one read in addition to parsing: wake-ups, system call, timer. Over TLS this includes records of one
# byte each, of which a read may decrypt some hundred.
READ_SECONDS, TLS_READ_SECONDS = 120e-6, 250e-6
# Bytes below which a read beyond the free ones is followed by a pause, and its seconds: the bytes of a slow sender are
# read together. Not over TLS, where single-byte records that arrive during a pause are decrypted in one event-loop
# iteration.
SMALL_READ, PAUSE_SECONDS = 4096, 0.01
# Bytes from which parsing is measured in each read: in chunks of one byte they cost more than all else of a post.
LARGE_READ = 16 * 1024


class BadResponse(ConnectionError):
    """The peer sent no response of HTTP/1.1, or one beyond the limits."""


class ConnectionClosedEarly(BadResponse):
    """The peer closed the connection before its response."""

    def __init__(self, *, unused: bool) -> None:
        super().__init__("the connection was closed without an answer")
        self.unused = unused  # whether it closed before it had sent a single byte


class ResponseParser:
    """Parses the responses on one connection, one after the other, without I/O; content is not kept."""

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Expect the next response. Allowed only after one with `keep_alive`."""
        # `status`: 0 until the head is complete; interim responses do not count, 101 does.
        # `size`: bytes received for this response, including interim responses.
        self.status = self.size = 0
        # `is_headed`: whether the head is complete. `is_complete`: whether the whole response has been parsed.
        # `keep_alive`: whether another request may follow on the connection; false until `is_complete`.
        self.is_headed = self.is_complete = self.keep_alive = False
        self._interim = self._lines = self._unfinished = 0
        self._fault = ""

    def close(self) -> None:
        """Expect no more bytes. Without it, this parser and the library's, which refer to each other, stay in memory
        with up to 32 KiB of a head until the interpreter GC runs."""
        self._parser = None

    def end(self) -> None:
        """Record that the connection was closed, which is the end of a response whose head is complete. Raises
        `ConnectionClosedEarly` before that.
        """
        if not self.is_headed:
            raise ConnectionClosedEarly(unused=not self.size)
        self.is_complete = True

    def feed(self, data: bytes) -> None:
        """Parse the next bytes; bytes behind a complete response are dropped. Raises `BadResponse`."""
        lines = 0 if self.is_headed else data.count(b"\n")
        if self._lines + lines <= MAX_HEADERS and self._unfinished + len(data) <= MAX_HEAD:
            interim = self._interim
            self._lines += lines
            self._feed(data)
            if self._interim != interim and not self.is_headed:
                # An interim response has no body, so its last empty line is its end.
                end = data.rfind(b"\r\n\r\n") + 4
                self._lines, self._unfinished = data.count(b"\n", end), len(data) - end
            return
        view, start = memoryview(data), 0
        while start < len(data) and not self.is_complete:
            end = min(len(data), start + MAX_HEAD - self._unfinished)
            if not self.is_headed and (line := data.find(b"\n", start, end)) >= 0:
                end = line + 1
                self._count_line()
            self._feed(view[start:end])
            start = end
        if start < len(data):
            self.keep_alive = False

    def _count_line(self) -> None:
        """Count a line: a callback for each header would add 5 % to the cost of a post."""
        self._lines += 1
        # The status line and the empty line at the end are not headers.
        if self._lines > MAX_HEADERS + 2:
            raise BadResponse(f"the response has more than {MAX_HEADERS} headers")

    def _feed(self, part: bytes | memoryview) -> None:
        self.size += len(part)
        self._unfinished += len(part)
        try:
            self._parser.feed_data(part)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # Bytes after a complete response are dropped, and its connection is not reused.
            self.keep_alive = False
            if not self.is_complete:
                raise BadResponse(self._fault or f"not a response of HTTP/1.1: {error}") from error
        if self.is_headed:
            self._unfinished = 0
            return
        if self._unfinished >= MAX_HEAD:
            raise BadResponse(f"the head of the response is over {MAX_HEAD} bytes")

    def _stop(self, fault: str) -> None:
        """Stop the parser, which reports an exception of a callback as its own."""
        self._fault = fault
        raise BadResponse(fault)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self.is_complete:
            self._stop("a response arrived without a request")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        # After 101 the connection is no longer HTTP: no other response will follow.
        if status >= 200 or status == 101:
            self.status = status
            self.is_headed = True

    def on_message_complete(self) -> None:
        if self.is_headed:
            self.is_complete = True
            self.keep_alive = self.status != 101 and bool(self._parser.should_keep_alive())
            return
        self._lines = self._unfinished = 0
        self._interim += 1
        if self._interim > MAX_INTERIM:
            self._stop(f"more than {MAX_INTERIM} interim responses arrived")


class ContentParser(ResponseParser):
    """Parses responses and keeps their headers and content."""

    def begin(self) -> None:
        super().begin()
        # By lower-case name; of several with one name, the last. Trailers are not included.
        self.headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._content = self._chunks = self._trailers = self._head_size = 0

    @property
    def length(self) -> int | None:
        """Bytes of content that the head declares; `None` when it declares none."""
        declared = self.headers.get("content-length", "")
        # Python converts at most 4300 digits; the parser bounds the number, and not its leading zeros.
        return int(declared.lstrip("0") or "0") if declared.isascii() and declared.isdigit() else None

    def take_content(self) -> bytes:
        """Return the content received since the last call, in one piece; empty for none."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def end(self) -> None:
        """Record that the connection was closed. Raises `BadResponse` unless that is a valid end of the response."""
        if self.is_complete:
            return
        is_framed = self.length is not None or "chunked" in self.headers.get("transfer-encoding", "").lower()
        if self.is_headed and is_framed:
            raise BadResponse("the connection was closed before the end of the response")
        super().end()

    def _feed(self, part: bytes | memoryview) -> None:
        was_headed, count = self.is_headed, len(self._pieces)
        super()._feed(part)
        if not was_headed:
            # The rest of this part is at most content, and does not count as overhead.
            self._head_size = self.size
        new = self._pieces[count:]
        self._content += sum(map(len, new))
        # Content without chunks also arrives in one piece per part, so the first piece is not counted.
        self._chunks += max(0, len(new) - 1)
        if self.size - self._head_size > MAX_OVERHEAD + 2 * self._content:
            raise BadResponse("the response is mostly overhead: chunk sizes, chunk extensions or trailers")
        if self._chunks > MAX_CHUNKS + self._content // CHUNK_BYTES:
            raise BadResponse("the chunks of the response are too small")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.is_headed:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")
            return
        self._trailers += 1
        if self._trailers > MAX_HEADERS:
            self._stop(f"the response has more than {MAX_HEADERS} trailers")

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        if not self.is_headed:
            # Headers of an interim response.
            self.headers.clear()
        super().on_message_complete()


class ReadCpuLimit:
    """Limit on the CPU that reads take, for all connections that share it: `READ_SHARE` of one core."""

    def __init__(self) -> None:
        # Event-loop time at which all CPU seconds consumed so far are within the share.
        self._settled_at = 0.0

    def consume(self, seconds: float) -> float:
        """Consume CPU seconds; returns the seconds to wait until they are within the share."""
        now = asyncio.get_running_loop().time()
        self._settled_at = max(self._settled_at, now - SAVED_SECONDS) + seconds / READ_SHARE
        return max(0.0, self._settled_at - now)


class EgressConnection(asyncio.Protocol):
    """One connection on which one request at a time is sent and its response is read.

    It reads only while a caller waits for it, one read at a time, so a fast sender cannot block the event loop.
    """

    def __init__(self, parser: ResponseParser, cpu_limit: ReadCpuLimit) -> None:
        # Whether the connection is closed.
        self.is_lost = False
        # Why it was closed; `None` when the peer closed it normally.
        self.error: Exception | None = None
        self.parser = parser
        self._cpu_limit = cpu_limit
        # An `asyncio.Transport`; uvloop's transports are not instances of it.
        self._transport: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._reads = 0
        self._read_seconds = READ_SECONDS
        # Seconds to wait after the last read, because it was small.
        self._pause, self._pauses = 0.0, True
        # CPU seconds for parsing the last read that was large or beyond the free reads.
        self._parsing = 0.0

    @property
    def is_usable(self) -> bool:
        """Return whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_reusable(self) -> bool:
        """Return whether the response is complete and another request can be sent."""
        # Inlined, as a post is a hot path.
        return self.parser.keep_alive and self._transport is not None and not self._transport.is_closing()

    @property
    def secured(self) -> ssl.SSLObject | None:
        """State of TLS; `None` without TLS or a connection."""
        found: ssl.SSLObject | None = self._transport and self._transport.get_extra_info("ssl_object")
        return found

    async def open(self, sock: socket.socket, host: str, tls: ssl.SSLContext | None) -> None:
        """Take over a connected socket, which is closed on failure. Raises `OSError`.

        host: name that the server's certificate must have.
        tls: context that verifies it; `None` for no TLS.
        """
        name = host if tls is not None else None
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: self, sock=sock, ssl=tls, server_hostname=name)
        except BaseException:
            sock.close()
            raise

    async def request(self, request: bytes, *, limit: int = 0) -> None:
        """Send a request, and read its response up to the end of its head and further to its end or beyond `limit`
        bytes.

        Raises `BadResponse`, `ConnectionClosedEarly` and other `OSError`s, after which the connection is closed; so it
        is when the caller is cancelled. A response that breaks off after its head raises nothing.
        """
        if not self.is_usable:
            raise ConnectionClosedEarly(unused=True)
        parser = self.parser
        try:
            await self.send(request)
            while not parser.is_complete and not (parser.is_headed and (self.is_lost or parser.size > limit)):
                await self.read()
        except BaseException:
            self.abort()
            raise

    def send(self, request: bytes) -> asyncio.Future[None]:
        """Send a request; returns a future for the first read of its response, or for the end of the connection.

        The future raises `BadResponse`, after which the connection is unusable. Not a coroutine: a post is a hot path.
        """
        self._reads = 1
        self.parser.begin()
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return waiter

    async def read(self) -> None:
        """Wait for one more read, or for the end of the connection. After that end, raise its error or end the
        response. Raises `BadResponse` and `OSError`.
        """
        if self.is_lost:
            if self.error is not None:
                raise self.error
            self.parser.end()
            return
        self._reads += 1
        if self._reads > FREE_READS:
            await self._wait(self._pause)
        if self.is_lost:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        if self.is_usable:
            self._transport.resume_reading()
        await self._waiter

    async def drop_rest(self) -> None:
        """Close at once, and wait until the last read is within the share of all reads. The rest of the response is
        lost."""
        self.abort()
        await self._wait(0.0)

    async def _wait(self, seconds: float) -> None:
        """Wait until the CPU seconds of the last read are within the share of all reads, and at least `seconds`."""
        delay = max(seconds, self._cpu_limit.consume(self._read_seconds + self._parsing))
        if delay:
            await asyncio.sleep(delay)

    def abort(self) -> None:
        """Close at once; unsent and unread data is lost."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if transport.get_extra_info("sslcontext") is not None:
            self._read_seconds, self._pauses = TLS_READ_SECONDS, False

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            # Data without a request.
            self.abort()
            return
        parser = self.parser
        try:
            if self._reads <= FREE_READS and len(data) < LARGE_READ:
                parser.feed(data)
            else:
                if self._reads > FREE_READS:
                    self._pause = PAUSE_SECONDS if self._pauses and len(data) < SMALL_READ else 0.0
                started = time.thread_time()
                parser.feed(data)
                self._parsing = time.thread_time() - started
        except BadResponse as error:
            # Its traceback and its cause refer to this call, and so to the connection and to the future.
            self._waiter = error.__cause__ = error.__context__ = None
            waiter.set_exception(error.with_traceback(None))
            return
        if not parser.is_complete:
            self._transport.pause_reading()
        waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.error = exc
        self._transport = None
        self.parser.close()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
