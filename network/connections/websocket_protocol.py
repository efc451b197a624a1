"""WebSocket handshake by uvicorn, and the hand-over of the open connection to another protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

# Key of this protocol in the extensions of the ASGI scope.
EXTENSION = "tidings.websocket"
# Bytes accepted before the handshake is complete; a client waits for the handshake's response.
MAX_EARLY = 4 * 1024


class UpgradeProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol for the handshake only. After the hand-over the application, its task and the
    request are freed while the connection stays open.

    on_login: to be called at the first login; refunds what the connection consumed of the limits on unauthenticated
        HTTP clients.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Scope of the request; `None` until its handshake has proved valid.
        self.scope: Any = None
        self._early = bytearray()
        self.on_login: Callable[[], None] = lambda: None

    def hand_over(self, connection: asyncio.Protocol) -> bool:
        """Give the transport to `connection`, after the handshake; False when the peer has disconnected."""
        transport = self.transport
        if self.disconnected or transport.is_closing():
            # The peer cannot receive a response, which is not an error of the application.
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
        """Break reference cycles; otherwise the interpreter's garbage collector frees the request only minutes later.

        The parser of `websockets` is a generator that references its connection and is referenced by it.
        """
        self.conn.parser.close()
        if self.scope is not None:
            self.scope["extensions"].pop(EXTENSION, None)

    # Calls by the transport.

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

    # Overrides of uvicorn's methods.

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if self.scope is not None:
            self.scope["extensions"][EXTENSION] = self

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            # Without this, uvicorn logs a denial as a handshake that the application did not complete.
            self.handshake_complete = True


class _Gone(asyncio.Transport):
    """Placeholder for a transport that was handed over; uvicorn closes it at the end of the request."""

    def close(self) -> None:
        """Do nothing: the new protocol closes the transport."""
