"""Upgrade of HTTP requests to WebSockets that carry frames as JSON or MessagePack, by subprotocol."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket
from fastapi.responses import JSONResponse

from network.connections.connections import Connections
from network.connections.websocket_connection import SUBPROTOCOLS, WebSocketConnection
from network.connections.websocket_handshake import EXTENSION, WebSocketHandshake

# Tokens that a WebSocket consumes: its request costs more than a TCP connection.
UPGRADE = 5.0


def make_routes(connections: Connections, *, write_buffer: int) -> APIRouter:
    """Return the endpoint of live connections. Once a connection is open, the call ends and the web server no longer
    owns it.
    """
    routes = APIRouter()

    @routes.websocket("/v1/connect")
    async def connect(websocket: WebSocket) -> None:
        offered = websocket.scope.get("subprotocols", [])
        name = next((name for name in offered if name in SUBPROTOCOLS), None)
        if name is None:
            detail = f"offer one of these subprotocols: {', '.join(SUBPROTOCOLS)}"
            answer = JSONResponse({"error": {"reason": "invalid", "detail": detail}}, 400)
            await websocket.send_denial_response(answer)
            return
        peer = websocket.client.host if websocket.client is not None else ""
        # Some proxies add a second header line instead of extending the first.
        host = connections.speaks_for(peer, ",".join(websocket.headers.getlist("x-forwarded-for")))
        slot = connections.enter(host, UPGRADE)
        if slot is None:
            detail = "too many connections without a login"
            answer = JSONResponse({"error": {"reason": "rate_limited", "detail": detail}}, 429, {"Retry-After": "1"})
            await websocket.send_denial_response(answer)
            return
        handshake: WebSocketHandshake = websocket.scope["extensions"][EXTENSION]
        slot.on_login = handshake.on_login
        opened = False
        try:
            await websocket.accept(subprotocol=name)
            connection = WebSocketConnection(
                SUBPROTOCOLS[name],
                connections.session(slot),
                host,
                max_write_buffer=write_buffer,
                unfinished=connections.unfinished,
            )
            opened = handshake.hand_over(connection)
        finally:
            if not opened:
                slot.left()

    return routes
