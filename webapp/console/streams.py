"""Event streams: a page that is open is notified when what it shows has changed."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from starlette.types import Receive, Scope, Send

from webapp.http.errors import Overloaded

log = logging.getLogger(__name__)

# Streams of one Webapp, and of one user. A page beyond that polls.
MAX_STREAMS, MAX_OF_USER = 50, 8
# Seconds between two renderings of a page, and between two comments that keep its stream alive.
LOOK, KEEP_ALIVE = 3.0, 15.0
# Seconds that a page without a stream waits between two requests.
POLL = 5

# Returns the digest of what a page shows now; `None` when its session has ended.
Look = Callable[[], Awaitable[str | None]]


class StreamSlots:
    """Slots of the streams of one Webapp. Service that ends all streams at its stop."""

    name = "console-streams"

    def __init__(self) -> None:
        self._of_users: collections.Counter[str] = collections.Counter()
        self.closing = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.closing.set()

    def take(self, user: str) -> None:
        """Take a slot for a stream of a user. Raises `Overloaded`."""
        if self._of_users.total() >= MAX_STREAMS or self._of_users[user] >= MAX_OF_USER:
            raise Overloaded("too many pages are open", retry_after=POLL)
        self._of_users[user] += 1

    def release(self, user: str) -> None:
        """Release a slot that `take` took."""
        self._of_users[user] -= 1
        if self._of_users[user] <= 0:
            del self._of_users[user]


class EventStream:
    """ASGI response that sends an event whenever a digest changes, until the client disconnects.

    The id of an event is the digest, so that a client that connects again is notified only of later changes.
    """

    def __init__(self, look: Look, since: str, closing: asyncio.Event, *, headers: Sequence[tuple[str, str]]) -> None:
        """Create the response.

        since: digest of what the client shows
        closing: event that ends the stream
        headers: further headers of the response
        """
        self._look = look
        self._since = since
        self._closing = closing
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [("Content-Type", "text/event-stream; charset=utf-8"), ("X-Accel-Buffering", "no"), *self._headers]
        raw = [(name.lower().encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        async with _until(_disconnected(receive), self._closing.wait()) as ended:
            await self._send_events(send, ended)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, send: Send, ended: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        shown = self._since
        # The first line makes proxies and browsers regard the stream as open.
        await _write(send, f"retry: {POLL * 1000}\n: open\n\n")
        written = loop.time()
        while not ended.is_set():
            try:
                digest = await self._look()
            except Exception as error:
                # The page marks its figures as stale and connects again.
                log.warning("console.stream_failed", extra={"error": repr(error)[:200]})
                return
            if digest is None:
                await _write(send, "event: ended\ndata: -\n\n")
                return
            if digest != shown:
                shown, written = digest, loop.time()
                await _write(send, f"id: {digest}\nevent: changed\ndata: {digest}\n\n")
            elif loop.time() - written >= KEEP_ALIVE - LOOK / 2:
                written = loop.time()
                await _write(send, ": alive\n\n")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await ended.wait()


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@contextlib.asynccontextmanager
async def _until(*endings: Awaitable[object]) -> AsyncIterator[asyncio.Event]:
    """Provide an event that is set when one of `endings` is done."""
    ended = asyncio.Event()
    tasks = [asyncio.ensure_future(ending) for ending in endings]
    for task in tasks:
        task.add_done_callback(lambda _: ended.set())
    try:
        yield ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
