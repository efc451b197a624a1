"""Handshakes of WebSockets by the web server, which hands what is open over to a protocol of our own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

# What the application finds this protocol under, in the extensions of its scope.
EXTENSION = "tidings.websocket"
# Bytes that may come before the handshake is answered; a client waits for the answer.
MAX_EARLY = 4 * 1024


class UpgradeProtocol(WebSocketsSansIOProtocol):
    """uvicorn's own up to the answer, then nobody's: the application, its task and all that belongs to the request are
    gone while the connection lives.

    on_login: for the application to have called when somebody has logged in for the first time: what the connection
              took of the bounds of strangers over HTTP is given back.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The request's, once its handshake has turned out to be one.
        self.scope: Any = None
        self._early = bytearray()
        self.on_login: Callable[[], None] = lambda: None

    def hand_over(self, connection: asyncio.Protocol) -> bool:
        """Let this have the transport, now that the handshake is done; false when the peer has gone."""
        transport = self.transport
        if self.disconnected or transport.is_closing():
            # Nobody is there to be answered, which is no fault of the application's.
            self.handshake_complete = True
            return False
        self.stop_keepalive()
        self.connections.discard(self)
        self._let_go()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        self.transport = _Gone()
        if self._early:
            connection.data_received(bytes(self._early))
        return True

    def _let_go(self) -> None:
        """Leave nothing in a circle, or the request is there until the collector of garbage finds it, in minutes.

        The parser of `websockets` is a generator that its connection has, and that has the connection.
        """
        self.conn.parser.close()
        if self.scope is not None:
            self.scope["extensions"].pop(EXTENSION, None)

    # From the transport.

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._let_go()

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated or self.handshake_complete:
            super().data_received(data)
        elif len(self._early) + len(data) > MAX_EARLY:
            self.transport.abort()
        else:
            self._early += data

    # Within uvicorn's.

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if self.scope is not None:
            self.scope["extensions"][EXTENSION] = self

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            # Denied, which uvicorn would log as a handshake that the application has forgotten.
            self.handshake_complete = True


class _Gone(asyncio.Transport):
    """What is left to uvicorn of a transport that was handed over, when it closes it at the end of the request."""

    def close(self) -> None:
        """It is another's to close."""
