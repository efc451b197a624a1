"""Copies of requests for a listener on a socket of this machine. Requests never wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
import time
from pathlib import Path
from typing import cast

from prometheus_client import Counter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidings.aio.service import wait_for
from tidings.wire import tap
from tidings.wire.tap import CopiedRequest

log = logging.getLogger(__name__)

COPIED = Counter("tidings_tap_requests_total", "Requests copied to a listener")
DROPPED = Counter("tidings_tap_dropped_total", "Requests not copied because the buffer was full")

PATHS = frozenset(("/v1/messages", "/v1/contacts"))
# Bytes that may wait for the listener. Copies beyond that are dropped.
MAX_BUFFERED = 1024 * 1024
# Seconds between two attempts to connect to a listener.
INTERVAL = 1.0

# Result of `SO_PEERCRED` in unix(7): process, user and group of the listener.
_PEER = struct.Struct("3i")


class Tap(asyncio.Protocol):
    """Service that connects to a listener. Its `layer` copies POST requests to `PATHS` while one is connected.

    A copy is made after the response was sent. Without a listener a request costs one comparison. A listener must
    be a process of the same user or of root.
    """

    name = "tap"

    def __init__(self, path: Path) -> None:
        """Create the service.

        path: Unix socket that the listener creates
        """
        self._path = path
        self._transport: asyncio.Transport | None = None
        self._is_noted = False

    def layer(self, app: ASGIApp) -> ASGIApp:
        """Return the application with a layer that copies requests."""

        async def tapped(scope: Scope, receive: Receive, send: Send) -> None:
            if self._transport is None or scope["type"] != "http" or scope["method"] != "POST":
                await app(scope, receive, send)
            elif scope["path"] in PATHS:
                await self._copy(app, scope, receive, send)
            else:
                await app(scope, receive, send)

        return tapped

    async def run(self, stop: asyncio.Event) -> None:
        """Connect to a listener whenever none is connected."""
        while not await wait_for(stop, INTERVAL):
            if self._transport is None:
                # Raised when there is no listener.
                with contextlib.suppress(OSError):
                    await self._connect()
        if self._transport is not None:
            self._transport.abort()

    async def _connect(self) -> None:
        """Connect to the listener. Raises `OSError`."""
        loop, connected = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX)
        try:
            connected.setblocking(False)
            await loop.sock_connect(connected, str(self._path))
            user = _user_of(connected)
            if user in (0, os.geteuid()):
                await loop.create_unix_connection(lambda: self, sock=connected)
                return
        except BaseException:
            connected.close()
            raise
        connected.close()
        if not self._is_noted:
            # Another user could have created a socket at this path, and must not receive any messages.
            log.warning("tap.refused", extra={"path": str(self._path), "user": user})
        self._is_noted = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    async def _copy(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        at, began = time.time(), time.perf_counter()
        parts: list[bytes] = []
        size = status = 0

        async def receive_copied() -> Message:
            nonlocal size
            message = await receive()
            body = message.get("body", b"")
            size += len(body)
            if size <= tap.MAX_BODY:
                parts.append(body)
            return message

        async def send_copied(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await app(scope, receive_copied, send_copied)
        finally:
            body = b"".join(parts) if size <= tap.MAX_BODY else b""
            self._pass_on(CopiedRequest(at, scope["path"], status, time.perf_counter() - began, size, body))

    def _pass_on(self, copied: CopiedRequest) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size() > MAX_BUFFERED:
            DROPPED.inc()
            return
        transport.write(tap.framed(copied))
        COPIED.inc()


def _user_of(connected: socket.socket) -> int:
    """Return the user id of the listening process."""
    _, user, _ = _PEER.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(user)
