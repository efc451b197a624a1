"""Connections of Webapps to this process, and their planned end, which leaves no request without a response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tidings.wire import core
from tidings.wire.connection import Connection

log = logging.getLogger(__name__)

# Seconds for the Webapps to close their connections, once all their requests have a response.
CLOSE_SECONDS = 3.0


class OpenLinks:
    """Authenticated connections; as many as there are Webapps."""

    def __init__(self) -> None:
        # Whether each Webapp is notified of the stop: one of an earlier release does not know the frame.
        self._links: dict[Connection, bool] = {}
        self._is_leaving = False
        self._empty = asyncio.Event()
        self._empty.set()

    def add(self, connection: Connection, *, is_notified: bool) -> None:
        """Record a connection. A repeated `Hello` changes nothing."""
        self._links[connection] = is_notified
        self._empty.clear()
        if self._is_leaving:
            self._notify(connection)

    def remove(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        self._links.pop(connection, None)
        if not any(self._links.values()):
            self._empty.set()

    def leave(self) -> None:
        """Notify the Webapps to send no more requests and to close their connections when they have every response."""
        self._is_leaving = True
        for connection in list(self._links):
            self._notify(connection)

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait at most `seconds` for the notified Webapps, then close the remaining connections."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            log.warning("link.not_closed", extra={"connections": len(self._links), "seconds": seconds})
        for connection in list(self._links):
            connection.close("the Coreapp has stopped")

    def _notify(self, connection: Connection) -> None:
        if self._links[connection]:
            connection.send(core.ShutdownNotice(0))


class LinkClosing:
    """Service that stops before all others: stops listening, and notifies the Webapps of the stop."""

    name = "link"

    def __init__(self, links: OpenLinks, stop_listening: Callable[[], None]) -> None:
        self._links = links
        self._stop_listening = stop_listening

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stop_listening()
        self._links.leave()
