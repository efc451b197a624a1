"""Event streams of pages (`text/event-stream`): a bounded number, each repeating what it missed."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import secrets
from collections.abc import AsyncIterator, Collection
from typing import Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidings.pages import headers

STREAMS = 50  # streams of a process
STREAMS_EACH = 8  # streams of one user or session
KEPT = 256  # events that a stream which connects again can still get
KEEP_ALIVE_SECONDS = 15.0
LIFETIME_SECONDS = 3600.0  # then the page connects again, and shows that it still may
RETRY_MS = 2000  # milliseconds after which a page connects again

# Event of a stream that has missed some: the page loads everything.
RESET = "reset"
# Event with each keep-alive, by which a page notices a dead connection: scripts do not see comments.
BEAT = "beat"
KEEP_ALIVE = f": keep-alive\nevent: {BEAT}\ndata: 1\n\n".encode()
# First chunk of each stream.
OPENED = f"retry: {RETRY_MS}\n\n".encode()


@dataclasses.dataclass(frozen=True, slots=True)
class PageEvent:
    """Event for the streams of a topic."""

    position: int
    topic: str
    name: str
    data: str  # one line

    def encode(self, incarnation: str) -> bytes:
        """Return the event as a stream sends it. incarnation: random text of the process, in the id"""
        return f"id: {incarnation}-{self.position}\nevent: {self.name}\ndata: {self.data}\n\n".encode()


class EventStreams:
    """Streams of one process. Events are kept in memory, and lost with the process."""

    def __init__(
        self, *, limit: int = STREAMS, each: int = STREAMS_EACH, keep_alive: float = KEEP_ALIVE_SECONDS
    ) -> None:
        """limit:      streams of all owners
        each:       streams of one owner
        keep_alive: seconds between keep-alives
        """
        self._limit = limit
        self._each = each
        self._keep_alive = keep_alive
        self._incarnation = secrets.token_hex(4)
        self._events: collections.deque[PageEvent] = collections.deque(maxlen=KEPT)
        self._position = 0
        self._owners: collections.Counter[str] = collections.Counter()
        self._open: set[EventStream] = set()
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Return whether all streams have ended, because the process stops."""
        return self._closed

    @property
    def count(self) -> int:
        """Return the number of open streams."""
        return self._owners.total()

    @property
    def mark(self) -> str:
        """Return the id of the last event: for a page that is made now, as the `last_id` of its stream."""
        return f"{self._incarnation}-{self._position}"

    def publish(self, topic: str, name: str, data: str = "1") -> None:
        """Send an event to the streams of a topic. data: one line, which is not empty"""
        self._position += 1
        self._events.append(PageEvent(self._position, topic, name, data))
        for stream in self._open:
            stream.has_events.set()

    def end(self, owner: str) -> None:
        """End the streams of one owner, whose session has ended."""
        for stream in [each for each in self._open if each.owner == owner]:
            stream.close()

    def close(self) -> None:
        """End all streams, because the process stops."""
        self._closed = True
        for stream in self._open:
            stream.has_events.set()

    def open(self, owner: str, topics: Collection[str], last_id: str = "") -> EventStream | None:
        """Open a stream; `None` when too many are open. Close it in any case.

        topics:  of the events that the stream sends
        last_id: of the last event that the page has got, or the mark when it was made; empty for none
        """
        if self._closed or self.count >= self._limit or self._owners[owner] >= self._each:
            return None
        self._owners[owner] += 1
        position, is_known = self._start(last_id)
        stream = EventStream(self, owner, topics, position=position, is_known=is_known)
        self._open.add(stream)
        return stream

    async def chunks(self, stream: EventStream) -> AsyncIterator[bytes]:
        """Yield what a stream sends, until it is closed."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + LIFETIME_SECONDS
        yield OPENED
        if not stream.is_known:
            yield self._reset()
        while not stream.is_ended and loop.time() < ends:
            stream.has_events.clear()
            if self._events and self._events[0].position > stream.position + 1:
                found = self._reset()
            else:
                found = b"".join(
                    event.encode(self._incarnation)
                    for event in self._events
                    if event.position > stream.position and event.topic in stream.topics
                )
            stream.position = self._position
            if found:
                yield found
            if not await stream.wait(self._keep_alive):
                yield KEEP_ALIVE

    def closed(self, stream: EventStream) -> None:
        """Called once by each stream when it is closed."""
        self._open.discard(stream)
        self._owners[stream.owner] -= 1
        if not self._owners[stream.owner]:
            del self._owners[stream.owner]

    def _start(self, last_id: str) -> tuple[int, bool]:
        """Return the position to go on from, and whether nothing is missed since the last id."""
        if not last_id:
            return self._position, True
        incarnation, _, number = last_id.partition("-")
        if incarnation != self._incarnation or not (number.isascii() and number.isdigit() and len(number) < 19):
            return self._position, False
        return min(int(number), self._position), True

    def _reset(self) -> bytes:
        return PageEvent(self._position, "", RESET, "1").encode(self._incarnation)


class ServedStream(Protocol):
    """Stream as its response sends it."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield what the stream sends, until it is closed."""
        ...

    def close(self) -> None:
        """Close the stream. It may be closed already."""
        ...


class EventStream:
    """One open stream."""

    def __init__(
        self, streams: EventStreams, owner: str, topics: Collection[str], *, position: int, is_known: bool
    ) -> None:
        """position: of the last event that the page has
        is_known: whether the page has missed nothing up to there
        """
        self.owner = owner
        self.topics = frozenset(topics)
        self.position = position
        self.is_known = is_known
        self.is_closed = False
        self.has_events = asyncio.Event()  # set when there are events, or when it is closed
        self._streams = streams

    @property
    def is_ended(self) -> bool:
        """Return whether the stream is closed, or all streams are."""
        return self.is_closed or self._streams.is_closed

    async def wait(self, seconds: float) -> bool:
        """Wait for events, or for the end of the stream. Returns whether one came within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                return await self.has_events.wait()
        except TimeoutError:
            return False

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield what the stream sends, until it is closed."""
        return self._streams.chunks(self)

    def close(self) -> None:
        """Close the stream, which no longer counts."""
        if not self.is_closed:
            self.is_closed = True
            self._streams.closed(self)
        self.has_events.set()


class EventStreamResponse(Response):
    """Response that sends a stream until the page disconnects, and closes it."""

    media_type = "text/event-stream"

    def __init__(self, stream: ServedStream) -> None:
        super().__init__(headers=dict(headers.of_stream()))
        # It has no end.
        del self.headers["content-length"]
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(_disconnection(receive))
        leaving.add_done_callback(lambda _: self._stream.close())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for chunk in self._stream.chunks():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            leaving.cancel()
            self._stream.close()


async def _disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
