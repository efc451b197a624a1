"""The two ways to the network: framed TCP, and a WebSocket on its HTTP address."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tidings.client import websocket
from tidings.wire import device
from tidings.wire.connection import Handler, connect


class FrameTransport(Protocol):
    """One open connection that carries frames of the device API.

    last_received: loop time of the last data from the network.
    """

    is_open: bool
    last_received: float

    def send(self, frame: Any) -> None:
        """Queue one frame; dropped when the connection is closed."""
        ...

    def close(self, reason: str) -> None:
        """Write what is queued, then close."""
        ...

    def abort(self, reason: str) -> None:
        """Close at once; what is queued is dropped."""
        ...


# Opens a connection for a handler. Raises `OSError` when nobody answers.
Dial = Callable[[Handler], Awaitable[FrameTransport]]


def tcp(host: str, port: int, *, tls: ssl.SSLContext | None = None) -> Dial:
    """Framed connections to this address."""

    async def dial(handler: Handler) -> FrameTransport:
        return await connect(host, port, device.FromNetwork, handler, tls=tls)

    return dial


def over_http(url: str, *, tls: ssl.SSLContext | None = None) -> Dial:
    """WebSockets to the network whose HTTP address this is: `https://network.example`, say.

    tls: how it is checked, by default by the system's authorities.
    """

    async def dial(handler: Handler) -> FrameTransport:
        return await websocket.dial("ws" + url.removeprefix("http") + "/v1/connect", handler, tls=tls)

    return dial
