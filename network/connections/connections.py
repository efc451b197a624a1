"""All open connections: their number, idle and late ones, and their end when the process stops."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Iterator
from typing import Protocol

from prometheus_client import Gauge

from network.connections.backend import Backend
from network.connections.connection_slots import LATE, REFUSED, ConnectionSlot
from network.connections.session import DeviceSession
from network.connections.transport import Transport
from network.routing.router import Router
from tidings.aio.service import wait_for
from tidings.wire import device
from tidings.wire.unfinished import Unfinished

log = logging.getLogger(__name__)

OPEN = Gauge("tidings_network_connections", "Open connections")

# Close grace period in seconds: time that a peer has to read the last frames before the connection is aborted.
CLOSE_GRACE = 5.0
# Checks in which each connection is checked once. Checking 20,000 connections at once would block the loop for 15 ms.
PARTS = 20
# Seconds between two steps of draining.
DRAIN_STEP = 0.1
# Seconds, at the end, for storing everything undecided in the mailboxes.
STORING = 8.0


class NodeExchange(Protocol):
    """Envelopes that this process exchanges with other nodes."""

    async def close(self) -> None:
        """Return when the other nodes have confirmed the envelopes given to them to deliver, or the router has stored
        these.
        """
        ...


class Connections:
    """Service that closes connections that are idle or late. Its stop ends the process in order.

    On stop, new connections are refused and devices are disconnected one by one over `drain` seconds. Then everything
    undecided is stored and its senders are notified. Remaining connections are closed as `shutdown`.

    on_drain: called when the service starts to stop, so that no more connections are accepted.
    is_draining: the service has started to stop.
    """

    name = "connections"

    def __init__(
        self, backend: Backend, router: Router, *, node: NodeExchange | None = None, drain: float = 0.0
    ) -> None:
        """node: `None` when there are no other nodes.
        drain: seconds over which devices are disconnected.
        """
        self._backend = backend
        self._router = router
        self._node = node
        self._drain_seconds = drain
        self.on_drain: list[Callable[[], object]] = []
        self.is_draining = False
        self.unfinished = Unfinished()
        # Sessions without a login yet, with the loop time by which one must come, in this order.
        self._unauthenticated: dict[DeviceSession, float] = {}
        self._sessions: set[DeviceSession] = set()
        # Sessions that are still to be checked in this round.
        self._round: Iterator[DeviceSession] = iter(())
        self._part = 1
        # Closed sessions, with the loop time at which they are aborted.
        self._leaving: dict[DeviceSession, float] = {}
        self._gone = asyncio.Event()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._sessions)

    def enter(self, host: str, tokens: float) -> ConnectionSlot | None:
        """Return a slot for a connection about to be opened, `None` when this address may have none now.

        tokens: rate-limit tokens that the connection costs.
        """
        return self._backend.slots.enter(host, tokens)

    def speaks_for(self, host: str, forwarded: str | None) -> str:
        """Return the client's address: the peer's, or the one that a trusted proxy names in `X-Forwarded-For`."""
        return self._backend.slots.table.speaks_for(host, forwarded.encode() if forwarded else None)

    def open(self, transport: Transport, slot: ConnectionSlot) -> DeviceSession:
        """Register a new connection. It may be closed again at once, with a reason."""
        session = DeviceSession(transport, self._backend, slot)
        self._sessions.add(session)
        self._unauthenticated[session] = asyncio.get_running_loop().time() + self._backend.limits.login
        OPEN.set(len(self._sessions))
        if self.is_draining:
            self._close(session, device.SHUTDOWN)
        elif len(self._sessions) > self._backend.limits.connections:
            self._close(session, device.OVERLOADED)
        return session

    def received(self, session: DeviceSession, frame: device.FromDevice) -> None:
        """Handle one frame; it is ignored while the process is stopping."""
        if not self._stopping:
            session.received(frame)

    def closed(self, session: DeviceSession, reason: str) -> None:
        """Remove a closed connection."""
        self._sessions.discard(session)
        self._leaving.pop(session, None)
        self._unauthenticated.pop(session, None)
        self._gone.set()
        OPEN.set(len(self._sessions))
        session.closed(reason)

    async def run(self, stop: asyncio.Event) -> None:
        limits = self._backend.limits
        while not await wait_for(stop, min(1.0, limits.idle / 4, limits.login / 4) / PARTS):
            self.run_once()
        self.is_draining = True
        if self._drain_seconds:
            await self._drain()
        self._stopping = True
        try:
            async with asyncio.timeout(STORING):
                if self._node is not None:
                    await self._node.close()
                # The router stores copies of the last group messages, and then their messages are forgotten.
                await self._backend.copies.close()
                await self._router.close()
                await self._backend.kept.close()
        except TimeoutError:
            # Their senders have received no response and will send them again.
            log.warning("connections.undecided", extra={"envelopes": self._router.undecided})
        # `Accepted` frames for the last batch are sent in the next event-loop iteration.
        await asyncio.sleep(0)
        for session in list(self._sessions):
            self._close(session, device.SHUTDOWN)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE):
                while self._sessions:
                    self._gone.clear()
                    await self._gone.wait()
        for session in list(self._sessions):
            session.transport.abort(device.SHUTDOWN)

    async def _drain(self) -> None:
        """Disconnect devices evenly over the drain time, so that the other nodes receive them gradually."""
        for call in self.on_drain:
            call()
        loop = asyncio.get_running_loop()
        began, total = loop.time(), len(self._sessions)
        while self._sessions and (passed := loop.time() - began) < self._drain_seconds + CLOSE_GRACE:
            due = min(total, math.ceil(total * (passed + DRAIN_STEP) / self._drain_seconds))
            here = [session for session in self._sessions if session not in self._leaving]
            for session in here[: due - (total - len(here))]:
                self._close(session, device.SHUTDOWN)
            await asyncio.sleep(DRAIN_STEP)
            self.run_once()

    def run_once(self) -> None:
        """Close late connections and abort those whose close grace period is over.

        In the next part of the connections, close those that are idle and abort those whose peer does not read.
        """
        now = asyncio.get_running_loop().time()
        self.unfinished.check(now)
        for session, deadline in list(self._leaving.items()):
            if now >= deadline:
                session.transport.abort("it did not take the last frames")
        self._close_late(now)
        for session in self._next_part():
            transport = session.transport
            transport.check_reader(now)
            if session not in self._leaving and now - transport.last_received > self._backend.limits.idle:
                # If reading was stopped on this side, the peer is not idle: its frames have waited for that long.
                self._close(session, device.OVERLOADED if transport.is_held else device.IDLE)

    def _next_part(self) -> Iterator[DeviceSession]:
        part = list(itertools.islice(self._round, self._part))
        if len(part) < self._part:
            # Connections opened since then are checked in the next round.
            self._part = max(1, math.ceil(len(self._sessions) / PARTS))
            self._round = iter(list(self._sessions))
        return (session for session in part if session in self._sessions)

    def _close_late(self, now: float) -> None:
        for session, deadline in list(self._unauthenticated.items()):
            if not session.is_new:
                del self._unauthenticated[session]
            elif now < deadline:
                return
            elif session.is_waiting_for_login:
                del self._unauthenticated[session]
                REFUSED.labels(LATE).inc()
                self._close(session, device.NO_LOGIN)

    def _close(self, session: DeviceSession, reason: str) -> None:
        if session not in self._leaving:
            self._leaving[session] = asyncio.get_running_loop().time() + CLOSE_GRACE
            session.close(reason)
