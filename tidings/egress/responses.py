"""Bounded reader of HTTP/1.1 responses from hosts that others name: webhooks, media hosts, proxies.

A hostile response costs a bounded amount of memory, CPU and time on the event loop, whatever its form. `ResponseParser`
bounds the head and the interim responses, `ContentParser` the overhead of the body as well, and `Connection` the reads.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httptools

# Bytes of one response head.
MAX_HEAD = 32 * 1024
# Headers of one response head, and as many trailers where content is kept.
MAX_HEADERS = 100
# Interim responses (status 1xx other than 101) before the response.
MAX_INTERIM = 8
# Bytes of a body that are no content (sizes and extensions of chunks, trailers), beyond as many as there is content.
MAX_OVERHEAD = 64 * 1024
# Chunks of a body: this many, and one more for each so many bytes of content.
MAX_CHUNKS, CHUNK_BYTES = 4096, 64
# Reads of one response that are never delayed. An honest response to a POST takes one or two.
FREE_READS = 8
# Share of one core for all further reads of one `ReadPace`, and the seconds at that share that may be saved up.
READ_SHARE, SAVED_SECONDS = 0.08, 0.5
# CPU seconds of one read besides parsing: the wake-ups, the system call, the timer; over TLS with the records that come
# byte by byte, of which a read may decrypt some hundred.
READ_SECONDS, TLS_READ_SECONDS = 60e-6, 250e-6


class BadResponse(ConnectionError):
    """Not a response of HTTP/1.1, or one beyond the limits."""


class ResponseParser:
    """Parses the responses on one connection, one after the other, without I/O; content is not kept.

    status: 0 until the head of the response is complete; interim responses do not count, 101 does.
    is_headed: whether the head is complete.
    is_complete: whether the whole response has been parsed.
    keep_alive: whether another request may follow on the connection; false until `is_complete`.
    size: bytes that came for this response, interim responses included.
    """

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Expect the next response. Only after one that allows it: see `keep_alive`."""
        self.status = self.size = 0
        self.is_headed = self.is_complete = self.keep_alive = False
        self._interim = self._lines = self._unfinished = 0
        self._fault = ""

    def feed(self, data: bytes) -> None:
        """Parse the next bytes; those behind a complete response are dropped. Raises `BadResponse`."""
        lines = 0 if self.is_headed else data.count(b"\n")
        if self._lines + lines <= MAX_HEADERS and self._unfinished + len(data) <= MAX_HEAD:
            interim = self._interim
            self._lines += lines
            self._feed(data)
            if self._interim != interim and not self.is_headed:
                # An interim response has no body, so that its last empty line is its end.
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
        """Lines are counted, not headers: a callback for each header would be 5 % of the cost of a post."""
        self._lines += 1
        # The status line and the empty line at the end are no headers.
        if self._lines > MAX_HEADERS + 2:
            raise BadResponse(f"the response has more than {MAX_HEADERS} headers")

    def _feed(self, part: bytes | memoryview) -> None:
        self.size += len(part)
        self._unfinished += len(part)
        try:
            self._parser.feed_data(part)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # What follows a complete response is dropped, and so is its connection.
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

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self.is_complete:
            self._stop("a response came that was not requested")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        # After 101 the connection is not HTTP any more: no other response will come.
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
            self._stop(f"more than {MAX_INTERIM} interim responses came")


class ContentParser(ResponseParser):
    """Parses responses and keeps their headers and content.

    headers: names in lower case; of several of one name the last; trailers are not among them.
    """

    def begin(self) -> None:
        super().begin()
        self.headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._content = self._chunks = self._trailers = self._head_size = 0

    @property
    def length(self) -> int | None:
        """Bytes of content that the head declares; `None` when it does not."""
        declared = self.headers.get("content-length", "")
        return int(declared) if declared.isascii() and declared.isdigit() else None

    def take_content(self) -> bytes:
        """The content that came since the last call, in one piece; empty for none."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def end(self) -> None:
        """The connection was closed. Raises `BadResponse` unless that is a valid end of the response."""
        if self.is_complete:
            return
        if not self.is_headed:
            raise BadResponse("the connection was closed before a response came")
        if self.length is not None or "chunked" in self.headers.get("transfer-encoding", "").lower():
            raise BadResponse("the connection was closed before the end of the response")
        self.is_complete = True

    def _feed(self, part: bytes | memoryview) -> None:
        was_headed, count = self.is_headed, len(self._pieces)
        super()._feed(part)
        if not was_headed:
            # The rest of this part is content at best, and does not count as overhead.
            self._head_size = self.size
        new = self._pieces[count:]
        self._content += sum(map(len, new))
        # A part brings one piece at least where it brings any, also without chunks.
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
            # Those of an interim response.
            self.headers.clear()
        super().on_message_complete()


class ReadPace:
    """Limit on the CPU that reads take, for all connections that share it: `READ_SHARE` of one core."""

    def __init__(self) -> None:
        # The time, by the event loop's clock, at which everything consumed so far is within the share.
        self._settled_at = 0.0

    def consume(self, seconds: float) -> float:
        """Consume CPU `seconds`; returns the seconds to wait until they are within the share."""
        now = asyncio.get_running_loop().time()
        self._settled_at = max(self._settled_at, now - SAVED_SECONDS) + seconds / READ_SHARE
        return max(0.0, self._settled_at - now)


class Connection(asyncio.Protocol):
    """One connection on which one request at a time is sent and its response is read.

    Nothing is read unless somebody waits for it, one read at a time, so a fast sender cannot hold up the event loop.

    is_lost: whether the connection is closed; error: why, `None` when the other side closed it in order.
    """

    def __init__(self, parser: ResponseParser, pace: ReadPace) -> None:
        self.is_lost = False
        self.error: Exception | None = None
        self._parser = parser
        self._pace = pace
        # An `asyncio.Transport`, but for uvloop not an instance of it.
        self._transport: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._reads = 0
        self._read_seconds = READ_SECONDS
        # CPU seconds of parsing what the last read brought; measured beyond the free reads.
        self._parsing = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes) -> asyncio.Future[None]:
        """Send a request; returns what waits for the first read of its response, or for the end of the connection.

        That raises `BadResponse`, from which the connection does not recover. Not a coroutine: a post is a hot path.
        """
        self._reads = 1
        self._parser.begin()
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return waiter

    async def read(self) -> None:
        """Wait for one more read, or for the end of the connection. Raises `BadResponse`."""
        self._reads += 1
        if self._reads > FREE_READS:
            delay = self._pace.consume(self._read_seconds + self._parsing)
            if delay:
                await asyncio.sleep(delay)
        if self.is_lost:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        if self.is_usable:
            self._transport.resume_reading()
        await self._waiter

    def abort(self) -> None:
        """Close without regard for what is unsent or unread."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if transport.get_extra_info("sslcontext") is not None:
            self._read_seconds = TLS_READ_SECONDS

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            # Nothing was requested.
            self.abort()
            return
        parser = self._parser
        try:
            if self._reads > FREE_READS:
                started = time.thread_time()
                parser.feed(data)
                self._parsing = time.thread_time() - started
            else:
                parser.feed(data)
        except BadResponse as error:
            waiter.set_exception(error)
            return
        if not parser.is_complete:
            self._transport.pause_reading()
        waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.error = exc
        self._transport = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
