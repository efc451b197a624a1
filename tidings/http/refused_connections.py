"""Refuse accepted connections with a response, over TLS after their handshake."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import ssl
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine
from typing import Any

from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.aio.token_buckets import TokenBuckets
from tidings.net.tls_server import Handshakes

QUEUED = 2_048  # refused connections that wait for their response
IN_PROGRESS = 256  # refused connections that get their response at a time
HANDSHAKES_EACH = 16  # of these, over TLS, those of one address: others keep slots for handshakes
# TLS handshakes for refused connections of one address: at once, and per second (each takes about 1.5 ms of CPU).
BURST, RATE = 2_048, 32.0
_REMEMBERED = 10_000  # addresses with remembered handshakes
_PAUSE = 0.02  # seconds between two passes
_STARTED, _STARTED_TLS = 64, 8  # responses that a pass starts, in plaintext and over TLS
_TRIED = 32  # addresses without a free slot after which a pass ends
# Seconds that a client may take until its request starts, and then to read the response and close the connection.
_LINGER = 1.0
_LINGER_BYTES = 64 * 1024  # bytes that a client may send in these seconds


class _RefusedConnection(asyncio.Protocol):
    """Connection that is sent one response, then read until its client closes it.

    The response waits for the start of the request: clients may treat an earlier one as an error. Closing while unread
    bytes are left would send a reset, which discards the response.
    """

    def __init__(self, response: bytes) -> None:
        self._response = response
        self._left = _LINGER_BYTES
        self._transport: asyncio.Transport | None = None
        self.has_data = asyncio.Event()
        self.is_closed = asyncio.Event()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left > 0:
            self.has_data.set()
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.has_data.set()
        self.is_closed.set()

    def respond(self) -> None:
        """Write the response. Without effect on a closed connection."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._response)
            if self._transport.can_write_eof():
                self._transport.write_eof()

    def abort(self) -> None:
        """Close the connection, if it has a transport."""
        if self._transport is not None:
            self._transport.abort()


@dataclasses.dataclass(eq=False, repr=False)
class RefusedConnections:
    """Queue of connections that are refused with a response; addresses are served round robin."""

    clock: Clock
    # Runs a task until the server closes.
    begin: Callable[[Coroutine[Any, Any, None]], object]
    # Returns the response, after which the connection closes.
    respond: Callable[[], bytes]
    _: dataclasses.KW_ONLY
    context: ssl.SSLContext | None  # TLS context; `None` for plaintext
    handshakes: Handshakes  # limits and counts the TLS handshakes

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queues: OrderedDict[str, deque[socket.socket]] = OrderedDict()
        self._queued = 0
        # Responses in progress by address.
        self._in_progress: Counter[str] = Counter()
        self._rate = TokenBuckets[str](self.clock, rate=RATE, burst=BURST, remembered=_REMEMBERED)
        self._next: asyncio.TimerHandle | None = None

    def add(self, connection: socket.socket, key: str) -> bool:
        """Queue a connection for its response. Returns false, and does nothing, when too many are queued.

        key: of its address.
        """
        if self._queued >= QUEUED or (self.context is not None and self._rate.take(key)):
            return False
        self._queues.setdefault(key, deque()).append(connection)
        self._queued += 1
        self._schedule()
        return True

    def close(self) -> None:
        """Close the queued connections."""
        if self._next is not None:
            self._next.cancel()
        for queue in self._queues.values():
            for connection in queue:
                connection.close()
        self._queues.clear()
        self._queued = 0

    def _schedule(self) -> None:
        if self._queued and self._next is None:
            self._next = self._loop.call_later(_PAUSE, self._begin_some)

    def _begin_some(self) -> None:
        self._next = None
        left = _STARTED if self.context is None else _STARTED_TLS
        passed_over = 0
        while left and passed_over < min(len(self._queues), _TRIED) and self._in_progress.total() < IN_PROGRESS:
            key, queue = self._queues.popitem(last=False)
            if self._take_slot(key):
                self._queued -= 1
                self.begin(self._refuse(queue.popleft(), key))
                left, passed_over = left - 1, 0
            else:
                passed_over += 1
            if queue:
                # Behind the other addresses: round robin.
                self._queues[key] = queue
        self._schedule()

    def _take_slot(self, key: str) -> bool:
        if self.context is not None and (
            self._in_progress[key] >= HANDSHAKES_EACH
            or not self.handshakes.has_room(key)
            or not self.handshakes.try_take(key)
        ):
            return False
        self._in_progress[key] += 1
        return True

    async def _refuse(self, connection: socket.socket, key: str) -> None:
        refused = _RefusedConnection(self.respond())
        try:
            if self.context is None:
                await self._loop.connect_accepted_socket(lambda: refused, connection)
            else:
                await self.handshakes.perform(lambda: refused, connection, self.context, key)
            await service.wait_for(refused.has_data, _LINGER)
            refused.respond()
            await service.wait_for(refused.is_closed, _LINGER)
        except (OSError, asyncio.CancelledError):
            connection.close()
        finally:
            refused.abort()
            self._in_progress[key] -= 1
            if not self._in_progress[key]:
                del self._in_progress[key]
