"""Connections taken from a listening socket, so many in one turn of the loop, with rests when they are too many."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)

# Connections taken in one turn of the loop, between which others have theirs.
_TURN = 32
# Seconds of rest when the process has no descriptor or memory left for a connection.
_EXHAUSTED = 1.0


class SocketServer:
    """Server as `asyncio.Server` is one, on one listening socket, which is closed with it. While it rests, connections
    wait with the system. What becomes of one that is taken is for `taken` to say.

    sockets: the one that listens.
    """

    def __init__(self, listening: socket.socket, *, refusals: int = 1, window: float = 0.0) -> None:
        """refusals: after so many within `window` seconds it rests until these end, so that refusing costs little."""
        listening.setblocking(False)
        self.sockets = (listening,)
        self._refusals = refusals
        self._window = window
        self._window_ends = 0.0
        self._refused = 0
        self._resting: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def taken(self, connection: socket.socket, host: str) -> None:
        """One connection was; it does not block. host: its address."""
        raise NotImplementedError

    def start(self) -> None:
        """Take connections from now on."""
        self._resting = None
        self._loop.add_reader(self.sockets[0], self._take)

    def close(self) -> None:
        """Take no more, and end the work on those that are beginning; connections that are open stay."""
        (listening,) = self.sockets
        if listening.fileno() < 0:
            return
        if self._resting is not None:
            self._resting.cancel()
        self._loop.remove_reader(listening)
        listening.close()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when everything that `close` has ended is over."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def rest(self, seconds: float) -> None:
        """Take none for a while."""
        self._loop.remove_reader(self.sockets[0])
        self._resting = self._loop.call_later(seconds, self.start)

    def refused(self) -> None:
        """One of those taken was closed at once."""
        now = self._loop.time()
        if now >= self._window_ends:
            self._window_ends, self._refused = now + self._window, 0
        self._refused += 1
        if self._refused >= self._refusals:
            self.rest(self._window_ends - now)

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do what a connection needs to begin; it ends with `close`."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _take(self) -> None:
        (listening,) = self.sockets
        for _ in range(_TURN):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("connections.not_accepted", extra={"error": error.strerror or str(error)})
                self.rest(_EXHAUSTED)
                return
            connection.setblocking(False)
            self.taken(connection, address[0])
            if self._resting is not None:
                return


def listen(host: str, port: int, *, backlog: int = 100) -> socket.socket:
    """A socket for a server. Raises `OSError`."""
    return socket.create_server(
        (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=backlog
    )
