"""Event streams: a page that is open is notified when what it shows has changed."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from tidings.pages import event_streams
from tidings.pages.event_streams import EventStream, EventStreams
from webapp.console.render.pages import LivePart, PageContent

log = logging.getLogger(__name__)

# Seconds between two renderings of a page, and between two keep-alives of its stream.
RENDER_SECONDS, KEEP_ALIVE = 5.0, event_streams.KEEP_ALIVE_SECONDS
# Seconds that a page without a stream waits between two requests.
POLL = 5
# Seconds after a rendering of a page in which the page that then updates itself shows it.
CURRENT = 2.0

# Returns the digest of what a page shows now; `None` when its session has ended.
Digest = Callable[[], Awaitable[str | None]]


@dataclasses.dataclass(eq=False)
class WatchedPage:
    """Page as its stream has rendered it last."""

    content: PageContent
    live: LivePart
    rendered_at: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def is_current(self) -> bool:
        """Return whether it was rendered just now."""
        return time.monotonic() - self.rendered_at < CURRENT


class PageWatch:
    """Stream that sends an event whenever a digest changes.

    The id of an event is the digest, so that a page that connects again is notified only of later changes.
    """

    def __init__(self, slot: EventStream, digest: Digest, since: str) -> None:
        """Create the stream.

        slot: open stream without topics, as which this one counts
        since: digest of what the page shows
        """
        self._slot = slot
        self._digest = digest
        self._since = since

    async def chunks(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        shown, written = self._since, loop.time()
        # The first line makes proxies and browsers regard the stream as open.
        yield event_streams.OPENED
        while not self._slot.is_ended:
            try:
                digest = await self._digest()
            except Exception as error:
                # The page marks its figures as stale and connects again.
                log.warning("console.stream_failed", extra={"error": repr(error)[:200]})
                return
            if digest is None:
                yield b"event: ended\ndata: 1\n\n"
                return
            if digest != shown:
                shown, written = digest, loop.time()
                yield f"id: {digest}\nevent: changed\ndata: {digest}\n\n".encode()
            elif loop.time() - written >= KEEP_ALIVE - RENDER_SECONDS / 2:
                written = loop.time()
                yield event_streams.KEEP_ALIVE
            await self._slot.wait(RENDER_SECONDS)

    def close(self) -> None:
        self._slot.close()


class StreamsEnd:
    """Service that ends all streams at its stop. The server would otherwise wait for them."""

    name = "console-streams"

    def __init__(self, streams: EventStreams) -> None:
        self._streams = streams

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._streams.close()
