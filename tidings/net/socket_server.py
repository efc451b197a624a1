"""Accept connections from a listening socket: a bounded number per event-loop iteration, with pauses under a flood."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)

# Connections accepted per event-loop iteration, so that other work is not delayed.
_PER_ITERATION = 32
# Seconds without accepting when the process has no descriptor or memory left for a connection.
_EXHAUSTED = 1.0


class SocketServer:
    """Server with the interface of `asyncio.Server`, on one listening socket, which it closes with itself.

    During a pause, connections wait in the kernel's backlog. Subclasses implement `taken`.
    """

    def __init__(self, listening: socket.socket, *, refusals: int = 1, window: float = 0.0) -> None:
        """listening: bound socket that listens.
        refusals: refused connections per `window` after which it pauses until the window ends, which bounds their cost.
        window: seconds.
        """
        listening.setblocking(False)
        self.sockets = (listening,)
        self._refusals = refusals
        self._window = window
        self._window_ends = 0.0
        self._refused = 0
        self._paused: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def taken(self, connection: socket.socket, host: str) -> None:
        """Handle an accepted connection; must not block. host: address of the peer."""
        raise NotImplementedError

    def start(self) -> None:
        """Accept connections from now on."""
        self._paused = None
        self._loop.add_reader(self.sockets[0], self._take)

    def close(self) -> None:
        """Stop accepting and cancel the tasks of `begin`; open connections stay."""
        (listening,) = self.sockets
        if listening.fileno() < 0:
            return
        if self._paused is not None:
            self._paused.cancel()
        self._loop.remove_reader(listening)
        listening.close()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until the tasks that `close` cancelled have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def pause(self, seconds: float) -> None:
        """Accept no connections for a time."""
        self._loop.remove_reader(self.sockets[0])
        self._paused = self._loop.call_later(seconds, self.start)

    def refused(self) -> None:
        """Record that an accepted connection was closed at once."""
        now = self._loop.time()
        if now >= self._window_ends:
            self._window_ends, self._refused = now + self._window, 0
        self._refused += 1
        if self._refused >= self._refusals:
            self.pause(self._window_ends - now)

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task that sets up a connection; `close` cancels it."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _take(self) -> None:
        (listening,) = self.sockets
        for _ in range(_PER_ITERATION):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("connections.not_accepted", extra={"error": error.strerror or str(error)})
                self.pause(_EXHAUSTED)
                return
            connection.setblocking(False)
            self.taken(connection, address[0])
            if self._paused is not None:
                return


def listen(host: str, port: int, *, backlog: int = 100) -> socket.socket:
    """Return a listening socket. Raises `OSError`."""
    return socket.create_server(
        (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=backlog
    )
