"""Transports to the network: framed TCP, and a WebSocket on its HTTP address."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tidings.client import websocket
from tidings.wire import device
from tidings.wire.connection import Handler, connect


class FrameTransport(Protocol):
    """Open connection that carries frames of the device API."""

    is_open: bool
    last_received: float  # event-loop time of the last data from the network, seconds

    def send(self, frame: Any) -> None:
        """Queue one frame. Does nothing when the connection is closed."""

    def close(self, reason: str) -> None:
        """Write the queued frames, then close."""

    def abort(self, reason: str) -> None:
        """Close at once, and drop queued frames."""


# Opens a connection for a handler. Raises `OSError` when the network cannot be reached.
Dial = Callable[[Handler], Awaitable[FrameTransport]]


def tcp(host: str, port: int, *, tls: ssl.SSLContext | None = None) -> Dial:
    """Return a function that opens framed TCP connections to this address."""

    async def dial(handler: Handler) -> FrameTransport:
        return await connect(host, port, device.FromNetwork, handler, tls=tls)

    return dial


def over_http(url: str, *, tls: ssl.SSLContext | None = None) -> Dial:
    """Return a function that opens WebSockets to the network.

    url: HTTP address of the network, such as `https://network.example`
    tls: context that verifies its certificate; None for the system's authorities
    """

    async def dial(handler: Handler) -> FrameTransport:
        return await websocket.dial("ws" + url.removeprefix("http") + "/v1/connect", handler, tls=tls)

    return dial
