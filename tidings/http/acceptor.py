"""Accept connections from a listening socket when admission has a slot for them; queue the others unread."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable

from prometheus_client import Counter

from tidings.http.connection_limiter import AdmittedConnection, ConnectionLimiter
from tidings.http.refused_connections import RefusedConnections
from tidings.net import unauthenticated
from tidings.net.socket_server import SocketServer
from tidings.net.tls_server import Handshakes
from tidings.net.unauthenticated import Refusal

log = logging.getLogger(__name__)

WAITED = Counter("tidings_unauthenticated_connections_waited_total", "Connections that waited before they were served")

# Seconds that a connection may wait for a slot.
MAX_WAIT = 10.0
# Connections refused per period of `_PERIOD` seconds; after that none is accepted until the period ends.
_TURNED_AWAY, _PERIOD = 100, 0.05
# Addresses whose waiting connections are tried in one pass, and seconds between two passes.
_TRIED, _PAUSE = 32, 0.02

# Connections in the kernel's backlog. In a flood, 2,000 a second are accepted and refused, so a client behind a full
# backlog waits three quarters of a second.
BACKLOG = 1536

_RESET = struct.pack("ii", 1, 0)


class AdmittedProtocol(asyncio.Protocol):
    """Protocol of an accepted connection."""

    def set_admitted(self, admitted: AdmittedConnection) -> None:
        """Hand over the admitted connection; called before `connection_made`.

        From `connection_made` on, the protocol itself reports to admission when requests are served and when it closes.
        """
        raise NotImplementedError

    def evict(self) -> None:
        """Close the connection because its slot goes to another one."""
        raise NotImplementedError

    def response(self, status: int, text: str) -> bytes:
        """Return a complete response after which the connection closes."""
        raise NotImplementedError


class _Arrival:
    """An accepted connection while it waits, performs its TLS handshake or is served."""

    __slots__ = ("connecting", "connection", "host", "is_known", "protocol", "since")

    def __init__(self, connection: socket.socket, host: str, since: float, *, is_known: bool) -> None:
        self.connection = connection
        self.host = host
        self.since = since
        # Whether its address had logged in within the last hour when the connection was accepted.
        self.is_known = is_known
        self.connecting: asyncio.Task[None] | None = None
        # Weak, to avoid a cycle: the protocol refers to its admitted connection, which refers to `close`.
        self.protocol: weakref.ref[AdmittedProtocol] | None = None

    def close(self) -> None:
        # During a handshake there is a protocol, which has no connection yet.
        if self.connecting is not None and not self.connecting.done():
            self.connecting.cancel()
        elif self.protocol is not None and (protocol := self.protocol()) is not None:
            protocol.evict()


class HttpAcceptor(SocketServer):
    """Server whose connections wait unread when there is no slot for them.

    Each address has a queue in order of arrival, and the addresses are served round robin. Connections from addresses
    that have logged in within the last hour count towards a separate limit. A connection that may not wait, or has
    waited too long, is refused: from a known address with 503 and `Retry-After`, as far as `RefusedConnections`
    permits, otherwise with a reset.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], AdmittedProtocol],
        limiter: ConnectionLimiter,
        *,
        context: ssl.SSLContext | None = None,
        handshakes: Handshakes | None = None,
    ) -> None:
        """Listen with a backlog of `BACKLOG`, and register with `limiter` for free slots.

        make: returns the protocol of a new connection.
        context: for TLS; `None` for plaintext.
        handshakes: limits and counts the TLS handshakes.
        """
        super().__init__(listening, refusals=_TURNED_AWAY, window=_PERIOD)
        listening.listen(BACKLOG)
        self._make = make
        self._limiter = limiter
        self._tls = context
        self._handshakes = handshakes or Handshakes("http")
        # Makes the responses of refused connections, and has no connection itself.
        self._refusing: AdmittedProtocol | None = None
        self._refused_connections = RefusedConnections(
            limiter.clock, self.begin, self._refusal, context=context, handshakes=self._handshakes
        )
        self._waiting: OrderedDict[str, deque[_Arrival]] = OrderedDict()
        # Waiting connections from known addresses (True) and from others (False).
        self._waiting_counts = {True: 0, False: 0}
        self._next: asyncio.TimerHandle | None = None
        limiter.on_room.append(self._room)

    def close(self) -> None:
        """Stop accepting, and close the waiting connections."""
        super().close()
        if self._room in self._limiter.on_room:
            self._limiter.on_room.remove(self._room)
        if self._next is not None:
            self._next.cancel()
        for queue in self._waiting.values():
            for arrival in queue:
                arrival.connection.close()
        self._waiting.clear()
        self._refused_connections.close()

    def taken(self, connection: socket.socket, host: str) -> None:
        self._arrived(_Arrival(connection, host, self._loop.time(), is_known=self._limiter.is_known(host)))

    def _arrived(self, arrival: _Arrival) -> None:
        key = unauthenticated.key_of(arrival.host)
        queue = self._waiting.get(key)
        if queue is None:
            refusal = self._enter(arrival)
            if refusal is None:
                return
        if not self._may_wait(arrival, len(queue or ())):
            self._refuse_connection(arrival, "too many connections wait for a slot")
            self.refused()
            return
        if queue is None:
            queue = self._waiting[key] = deque()
        WAITED.inc()
        queue.append(arrival)
        self._waiting_counts[arrival.is_known] += 1
        self._room()

    def _may_wait(self, arrival: _Arrival, before: int) -> bool:
        """Return whether there is room in the queue. before: waiting connections from the same address."""
        limits, waiting = self._limiter.limits, self._waiting_counts[arrival.is_known]
        if arrival.is_known:
            return waiting < limits.waiting_known
        return waiting < limits.waiting and before < limits.waiting_each

    def _refuse_connection(self, arrival: _Arrival, reason: str) -> None:
        self._limiter.refused(arrival.host, reason)
        gets_response = arrival.is_known and self._refused_connections.add(
            arrival.connection, unauthenticated.key_of(arrival.host)
        )
        if not gets_response:
            _reset(arrival.connection)

    def _refusal(self) -> bytes:
        if self._refusing is None:
            self._refusing = self._make()
        return self._refusing.response(503, "too many connections wait: try again in a second")

    def _enter(self, arrival: _Arrival) -> Refusal | None:
        key = unauthenticated.key_of(arrival.host)
        if self._tls is not None and not self._handshakes.try_take(key):
            return Refusal(unauthenticated.ADDRESS, self._handshakes.seconds)
        admitted = self._limiter.admit(arrival.host, arrival.close)
        if isinstance(admitted, Refusal):
            if self._tls is not None:
                self._handshakes.release(key, "refused")
            return admitted
        arrival.connecting = self.begin(self._connect(arrival, admitted))
        return None

    async def _connect(self, arrival: _Arrival, admitted: AdmittedConnection) -> None:
        def make() -> asyncio.Protocol:
            protocol = self._make()
            arrival.protocol = weakref.ref(protocol)
            protocol.set_admitted(admitted)
            return protocol

        connection, context = arrival.connection, self._tls
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is None:
                await self._loop.connect_accepted_socket(make, connection)
            else:
                await self._handshakes.perform(make, connection, context, unauthenticated.key_of(arrival.host))
        except (OSError, asyncio.CancelledError) as error:
            log.debug("http.no_connection", extra={"error": repr(error)[:200]})
            connection.close()
            if not admitted.is_served:
                self._limiter.release_slot(admitted)

    def _room(self) -> None:
        if self._waiting and self._next is None:
            self._next = self._loop.call_later(_PAUSE, self._admit)

    def _admit(self) -> None:
        self._next = None
        expired = self._loop.time() - MAX_WAIT
        for _ in range(min(_TRIED, len(self._waiting))):
            key, queue = self._waiting.popitem(last=False)
            while queue:
                first = queue[0]
                if first.since < expired:
                    self._refuse_connection(first, f"no slot became free within {MAX_WAIT:.0f} seconds")
                elif self._enter(first) is not None:
                    break
                queue.popleft()
                self._waiting_counts[first.is_known] -= 1
            if queue:
                # Behind the other addresses: round robin.
                self._waiting[key] = queue
        if self._waiting and self._next is None:
            # Slots also become available with time.
            self._next = self._loop.call_later(_PAUSE * 5, self._admit)


def _reset(connection: socket.socket) -> None:
    """Reset the connection, so that the kernel keeps no state for it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
