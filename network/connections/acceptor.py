"""Accepting of connections over TCP, no faster than those who have not logged in may cost."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from network.connections.places import Place
from tidings.runtime.socket_server import SocketServer

# Refusals in so many seconds; then the rest waits in the backlog of the system for the next ones. Each costs about
# 40 µs of CPU.
REFUSALS, WINDOW = 25, 0.05


class Acceptor(SocketServer):
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
        super().__init__(listening, refusals=REFUSALS, window=WINDOW)
        self._enter = enter
        self._serve = serve
        self._last_word = last_word

    def taken(self, connection: socket.socket, host: str) -> None:
        place = self._enter(host)
        if place is not None:
            place.on_eviction(self.begin(self._serve(connection, place)).cancel)
            return
        with connection, contextlib.suppress(OSError):
            if self._last_word:
                connection.send(self._last_word)
        self.refused()
