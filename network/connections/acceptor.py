"""Accepting of connections over TCP, no faster than those who have not logged in may cost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from network.connections.places import Place

log = logging.getLogger(__name__)

# Connections accepted in one turn of the loop.
TURN = 32
# Refusals in so many seconds; then the rest waits in the backlog of the system for the next ones. Each costs about
# 40 µs of CPU.
REFUSALS, WINDOW = 25, 0.05
# Seconds after which is tried again when the process has no descriptor left.
PATIENCE = 1.0


class Acceptor:
    """Connections of one listening socket: each gets a place, or the last word at once."""

    def __init__(
        self,
        listening: socket.socket,
        enter: Callable[[str], Place | None],
        serve: Callable[[socket.socket, Place], Coroutine[Any, Any, None]],
        *,
        last_word: bytes,
    ) -> None:
        """enter(): a place for an address; serve(): ends when the connection is its protocol's; last_word: of a
        refusal."""
        self._listening = listening
        self._enter = enter
        self._serve = serve
        self._last_word = last_word
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._since = 0.0
        self._refused = 0
        self._resuming: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Accept from now on."""
        self._resuming = None
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more; handshakes under way are broken off."""
        if self._listening.fileno() < 0:
            return
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        for task in self._tasks:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(TURN):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("connections.not_accepted", extra={"error": error.strerror or str(error)})
                self._rest(PATIENCE)
                return
            accepted.setblocking(False)
            place = self._enter(address[0])
            if place is not None:
                self._begin(accepted, place)
            elif self._refuse(accepted):
                return

    def _begin(self, accepted: socket.socket, place: Place) -> None:
        task = self._loop.create_task(self._serve(accepted, place))
        place.on_eviction(task.cancel)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse(self, accepted: socket.socket) -> bool:
        """Is it time to rest?"""
        with accepted, contextlib.suppress(OSError):
            if self._last_word:
                accepted.send(self._last_word)
        now = self._loop.time()
        if now - self._since >= WINDOW:
            self._since, self._refused = now, 0
        self._refused += 1
        if self._refused < REFUSALS:
            return False
        self._rest(self._since + WINDOW - now)
        return True

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self._listening)
        self._resuming = self._loop.call_later(seconds, self.start)
