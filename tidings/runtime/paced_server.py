"""Connections taken from a listening socket at a pace: whoever comes faster waits with the system."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from tidings.runtime.clock import SystemClock
from tidings.runtime.token_buckets import TokenBuckets

log = logging.getLogger(__name__)

# Connections taken in one turn of the loop.
_TURN = 32
# Seconds until connections are taken again when the process has no descriptor or memory left for one.
_EXHAUSTED = 1.0


class PacedServer:
    """A server as `asyncio.Server` is one, for listeners that few connect to and everybody on the machine can reach: a
    flood of connections costs no more than the pace."""

    def __init__(
        self, listening: socket.socket, make: Callable[[], asyncio.BaseProtocol], *, rate: float, burst: float
    ) -> None:
        """make(): the protocol of a connection; rate: connections a second, and burst: at once."""
        self.sockets = (listening,)
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._tokens = TokenBuckets[str](SystemClock(), rate=rate, burst=burst, remembered=1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._resting: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Take no more; connections that are open stay."""
        (listening,) = self.sockets
        if listening.fileno() < 0:
            return
        if self._resting is not None:
            self._resting.cancel()
        self._loop.remove_reader(listening)
        listening.close()
        for task in self._tasks:
            task.cancel()

    def _accept(self) -> None:
        (listening,) = self.sockets
        for _ in range(_TURN):
            wait = self._tokens.wait("")
            if wait:
                self._rest(wait)
                return
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("connections.not_accepted", extra={"error": error.strerror or str(error)})
                self._rest(_EXHAUSTED)
                return
            self._tokens.add("")
            task = self._loop.create_task(self._serve(accepted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self.sockets[0])
        self._resting = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._resting = None
        self._loop.add_reader(self.sockets[0], self._accept)

    async def _serve(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(self._make, accepted)
        except (OSError, asyncio.CancelledError):
            # The peer has gone.
            accepted.close()
