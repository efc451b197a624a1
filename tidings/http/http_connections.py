"""Open connections of a server and its requests in progress, which a planned stop lets finish."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Protocol

log = logging.getLogger(__name__)

# Seconds that cancelled requests have to end.
_CANCELLED = 1.0


class StoppableConnection(Protocol):
    """Connection that a planned stop closes."""

    def shut_down(self) -> None:
        """Close the connection after the response in progress; at once if there is none."""
        ...

    def abort(self) -> None:
        """Close the connection and drop data that is not written."""
        ...


class HttpConnections:
    """Open connections of a server, without those handed over to another protocol, and its requests in progress."""

    def __init__(self) -> None:
        self._connections: set[StoppableConnection] = set()
        # Requests in progress, such as exchanges, and the tasks that run the application for them.
        self.running: dict[object, asyncio.Task[None]] = {}
        # Set when no connection is left; created by `drain`.
        self._emptied: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[StoppableConnection]:
        return iter(self._connections)

    def add(self, connection: StoppableConnection) -> None:
        """Add a new connection."""
        self._connections.add(connection)

    def discard(self, connection: StoppableConnection) -> None:
        """Remove a connection that is closed or was handed over."""
        self._connections.discard(connection)
        if self._emptied is not None and not self._connections:
            self._emptied.set()

    async def drain(self, grace: float) -> None:
        """Let requests in progress finish, and close the connections.

        grace: seconds after which requests are cancelled and connections are aborted.
        """
        self._emptied = asyncio.Event()
        for connection in list(self._connections):
            connection.shut_down()
        try:
            async with asyncio.timeout(grace):
                while self._connections:
                    self._emptied.clear()
                    await self._emptied.wait()
                while self.running:
                    await asyncio.wait(list(self.running.values()))
        except TimeoutError:
            await self._cancel(grace)

    async def _cancel(self, grace: float) -> None:
        if self.running:
            log.warning("http.requests_cancelled", extra={"requests": len(self.running), "grace_s": grace})
            tasks = list(self.running.values())
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_CANCELLED)
            self.running.clear()
        for connection in list(self._connections):
            connection.abort()
