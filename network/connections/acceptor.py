"""Acceptor of TCP connections, which bounds the cost of unauthenticated clients."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from network.connections.connection_slots import ConnectionSlot
from tidings.net.socket_server import SocketServer

# At most 25 connections are refused per 0.05 s; the rest waits in the system's backlog for the next interval. A refusal
# costs about 40 µs of CPU.
REFUSALS, WINDOW = 25, 0.05


class DeviceAcceptor(SocketServer):
    """Connections of one listening socket: each gets a slot, or is refused at once."""

    def __init__(
        self,
        listening: socket.socket,
        enter: Callable[[str], ConnectionSlot | None],
        serve: Callable[[socket.socket, ConnectionSlot], Coroutine[Any, Any, None]],
        *,
        last_word: bytes,
    ) -> None:
        """enter: return a slot for an address, `None` to refuse the connection.
        serve: run until the connection belongs to its protocol.
        last_word: bytes sent on a refusal; empty for none.
        """
        super().__init__(listening, refusals=REFUSALS, window=WINDOW)
        self._enter = enter
        self._serve = serve
        self._last_word = last_word

    def taken(self, connection: socket.socket, host: str) -> None:
        slot = self._enter(host)
        if slot is not None:
            slot.on_eviction(self.begin(self._serve(connection, slot)).cancel)
            return
        with connection, contextlib.suppress(OSError):
            if self._last_word:
                connection.send(self._last_word)
        self.refused()
