"""Handler that ties one connection to its session, independent of the transport."""

from __future__ import annotations

from typing import Any

from network.connections.connection_slots import ConnectionSlot
from network.connections.connections import Connections
from network.connections.session import DeviceSession
from tidings.wire.connection import Connection


class SessionHandler:
    """Handler of one connection."""

    __slots__ = ("_connections", "_session", "_slot")

    def __init__(self, connections: Connections, slot: ConnectionSlot) -> None:
        self._connections = connections
        self._slot: ConnectionSlot | None = slot
        self._session: DeviceSession | None = None

    def opened(self, connection: Connection) -> None:
        assert self._slot is not None
        self._session = self._connections.open(connection, self._slot)
        # The session gives the slot back. A connection that lasts for days keeps no reference to it.
        self._slot = None

    def received(self, connection: Connection, frame: Any) -> None:
        assert self._session is not None
        self._connections.received(self._session, frame)

    def closed(self, connection: Connection, reason: str) -> None:
        if self._session is not None:
            self._connections.closed(self._session, reason)
