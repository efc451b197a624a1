"""WebSocket handshake (RFC 6455, section 4.2), and the handover of the open connection to another protocol."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Scope

from tidings.http.exchange import HttpExchange, InvalidResponse
from tidings.http.protocol import ServerState

log = logging.getLogger(__name__)

# Key of the handshake in the extensions of the ASGI scope.
EXTENSION = "tidings.websocket"
# Bytes accepted before the handshake is complete; a client waits for the handshake's response.
MAX_EARLY = 4 * 1024

_VERSION = b"13"
_KEY_BYTES = 16
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_NO_BODY = ((b"content-length", b"0"),)
_SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"


class InvalidHandshake(Exception):
    """The request is no valid opening handshake; the text is the reason."""


def is_websocket_upgrade(scope: Scope) -> bool:
    """Return whether a request for another protocol asks for a WebSocket."""
    return any(name == b"upgrade" and value.lower() == b"websocket" for name, value in scope["headers"])


def accept_value(scope: Scope) -> bytes:
    """Return the value of `Sec-WebSocket-Accept` for a request. Raises `InvalidHandshake`."""
    if scope["method"] != "GET" or scope["http_version"] != "1.1":
        raise InvalidHandshake("a WebSocket handshake is a GET request of HTTP/1.1")
    if _values(scope, b"sec-websocket-version") != [_VERSION]:
        raise InvalidHandshake("Sec-WebSocket-Version must be 13")
    keys = _values(scope, b"sec-websocket-key")
    try:
        is_key = len(keys) == 1 and len(base64.b64decode(keys[0], validate=True)) == _KEY_BYTES
    except binascii.Error:
        is_key = False
    if not is_key:
        raise InvalidHandshake(f"Sec-WebSocket-Key must be {_KEY_BYTES} bytes in base64")
    return base64.b64encode(hashlib.sha1(keys[0] + _GUID, usedforsecurity=False).digest())


def _values(scope: Scope, wanted: bytes) -> list[bytes]:
    return [value.strip() for name, value in scope["headers"] if name == wanted]


class WebSocketHandshake(asyncio.Protocol):
    """Connection with a request for a WebSocket, which an ASGI application accepts or denies.

    An application that accepts then gives the connection to another protocol with `hand_over`. The request, the
    application's task and this object are freed while the connection stays open.
    """

    is_writing_paused = False

    def __init__(
        self, transport: asyncio.Transport, scope: Scope, server_state: ServerState, *, on_login: Callable[[], None]
    ) -> None:
        """scope: of the HTTP request.
        server_state: has this connection until it is handed over.
        on_login(): to be called at the first login on the connection.
        """
        self.transport = transport
        self.on_login = on_login
        self._server_state = server_state
        self._task: asyncio.Task[None] | None = None
        self._accept = accept_value(scope)
        offered = b",".join(_values(scope, b"sec-websocket-protocol")).decode("latin-1").split(",")
        self._scope = {
            **scope,
            "type": "websocket",
            "scheme": "wss" if scope["scheme"] == "https" else "ws",
            "subprotocols": [name.strip() for name in offered if name.strip()],
            "extensions": {"websocket.http.response": {}, EXTENSION: self},
        }
        # Response of an application that denies the handshake.
        self._denial = HttpExchange(self, scope, b"", keep_alive=False, awaits_continue=False)
        self._early = bytearray()
        self._is_announced = False
        self._is_accepted = False
        # Whether the connection is denied, handed over or closed.
        self._is_over = False
        self._lost = asyncio.Event()

    def start(self, app: ASGIApp, early: bytes) -> None:
        """Call the application. early: data behind the head of the request."""
        self._server_state.connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._run(app))
        self._server_state.tasks.add(self._task)
        self.data_received(early)

    def hand_over(self, connection: asyncio.Protocol) -> bool:
        """Give the transport to `connection`, after `websocket.accept`; False when the client has disconnected."""
        if self._is_over or self.transport.is_closing():
            self._is_over = True
            return False
        self._is_over = True
        self._server_state.connections.discard(self)
        self.transport.set_protocol(connection)
        connection.connection_made(self.transport)
        if self._early:
            connection.data_received(bytes(self._early))
        return True

    async def _run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self._receive, self._send)
            if not self._is_over:
                raise InvalidResponse("the application neither denied the handshake nor handed the connection over")
        except Exception as error:
            log.error("http.application_failed", extra={"path": self._scope["path"]}, exc_info=error)
            self._fail()
        except asyncio.CancelledError:
            self._fail()
            raise
        finally:
            assert self._task is not None
            self._server_state.tasks.discard(self._task)
            # Break the reference cycles; otherwise the request stays until a garbage collection.
            del self._scope["extensions"], self._denial, self._task

    def _fail(self) -> None:
        if not self._is_over:
            self.transport.close()

    async def _receive(self) -> Message:
        if not self._is_announced:
            self._is_announced = True
            return {"type": "websocket.connect"}
        await self._lost.wait()
        return {"type": "websocket.disconnect", "code": 1006}

    async def _send(self, message: Message) -> None:
        kind: str = message["type"]
        if self._is_over or self._is_accepted:
            raise InvalidResponse(f"the application sent {kind} after the handshake")
        if kind == "websocket.accept":
            self._is_accepted = True
            self._respond(message.get("subprotocol"))
        elif kind == "websocket.close":
            await self._denial.send({"type": "http.response.start", "status": 403, "headers": _NO_BODY})
            await self._denial.send({"type": "http.response.body"})
        else:
            # "websocket.http.response.start" and "websocket.http.response.body"
            await self._denial.send({**message, "type": kind.removeprefix("websocket.")})

    def _respond(self, subprotocol: str | None) -> None:
        chosen = f"sec-websocket-protocol: {subprotocol}\r\n" if subprotocol else ""
        if not self.transport.is_closing():
            self.transport.write(
                b"%bsec-websocket-accept: %b\r\n%b\r\n" % (_SWITCHING, self._accept, chosen.encode("ascii"))
            )

    # Calls by the transport.

    def data_received(self, data: bytes) -> None:
        self._early += data
        if len(self._early) > MAX_EARLY:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._server_state.connections.discard(self)
        self._lost.set()

    # Calls by the response of a denial.

    def resume_reading(self) -> None:
        """Do nothing: reading never pauses."""

    async def drain(self) -> None:
        """Do nothing: a denial is short."""

    def completed(self, exchange: HttpExchange) -> None:
        self._is_over = True
        self.transport.close()

    # Calls by the server at a planned stop.

    def shutdown(self) -> None:
        """Let the handshake finish, which takes no time."""

    def abort(self) -> None:
        self.transport.abort()
