"""All open connections: how many there may be, which are silent for too long, and the end of all of them."""

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
from network.connections.places import LATE, REFUSED, Place
from network.connections.session import Session
from network.connections.transport import Transport
from network.routing.router import Router
from tidings.runtime.service import wait_for
from tidings.wire import device
from tidings.wire.unfinished import Unfinished

log = logging.getLogger(__name__)

OPEN = Gauge("tidings_network_connections", "Open connections")

# Seconds that a connection which we close has to take the last frames; then it is cut off.
FAREWELL = 5.0
# Looks in which every connection has its turn once: to look at all of them at once would hold up 20,000 for 15 ms.
PARTS = 20
# Seconds between two looks whom to ask to leave.
DRAIN_STEP = 0.1
# Seconds that the mailbox has, at the end, to take everything undecided.
STORING = 8.0


class Node(Protocol):
    """This process among the other nodes."""

    async def close(self) -> None:
        """What they were given to deliver is answered by them, or stored by the router, when this returns."""
        ...


class Connections:
    """Service that closes connections that are idle or late; its stop is the orderly end of the process.

    Stop: nothing new is accepted; devices are asked to leave, one after the other, over `drain` seconds; everything
    undecided is stored and its senders told; whoever is still there hears `shutdown`.

    on_drain:    called when it begins to stop, so that no more connections come.
    is_draining: it has begun to stop.
    """

    name = "connections"

    def __init__(self, backend: Backend, router: Router, *, node: Node | None = None, drain: float = 0.0) -> None:
        """drain: seconds."""
        self._backend = backend
        self._router = router
        self._node = node
        self._drain_seconds = drain
        self.on_drain: list[Callable[[], object]] = []
        self.is_draining = False
        self.unfinished = Unfinished()
        # Those on which nobody has logged in yet, with the loop time until which somebody may, in this order.
        self._newcomers: dict[Session, float] = {}
        self._sessions: set[Session] = set()
        # Those that are still to be looked at in this round.
        self._round: Iterator[Session] = iter(())
        self._part = 1
        # Those that we closed, with the loop time at which they are cut off.
        self._leaving: dict[Session, float] = {}
        self._gone = asyncio.Event()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._sessions)

    def enter(self, host: str, tokens: float) -> Place | None:
        """A place for a connection that is about to be opened, `None` when there is none for this address now."""
        return self._backend.places.enter(host, tokens)

    def speaks_for(self, host: str, forwarded: str | None) -> str:
        """Whose connection it is: the peer's own, or that of whom a trusted proxy names in `X-Forwarded-For`."""
        return self._backend.places.table.speaks_for(host, forwarded.encode() if forwarded else None)

    def open(self, transport: Transport, place: Place) -> Session:
        """A new connection. It may be closed again at once, with the reason said."""
        session = Session(transport, self._backend, place)
        self._sessions.add(session)
        self._newcomers[session] = asyncio.get_running_loop().time() + self._backend.limits.login
        OPEN.set(len(self._sessions))
        if self.is_draining:
            self._close(session, device.SHUTDOWN)
        elif len(self._sessions) > self._backend.limits.connections:
            self._close(session, device.OVERLOADED)
        return session

    def received(self, session: Session, frame: device.FromDevice) -> None:
        """One frame; ignored when the process is stopping."""
        if not self._stopping:
            session.received(frame)

    def closed(self, session: Session, reason: str) -> None:
        """A connection is gone."""
        self._sessions.discard(session)
        self._leaving.pop(session, None)
        self._newcomers.pop(session, None)
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
                # Copies of what groups were sent last are stored by the router, and then their messages forgotten.
                await self._backend.copies.close()
                await self._router.close()
                await self._backend.kept.close()
        except TimeoutError:
            # Their senders have not been told, and send them again.
            log.warning("connections.undecided", extra={"envelopes": self._router.undecided})
        # What was accepted by the last batch is said in the next turn of the loop.
        await asyncio.sleep(0)
        for session in list(self._sessions):
            self._close(session, device.SHUTDOWN)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL):
                while self._sessions:
                    self._gone.clear()
                    await self._gone.wait()
        for session in list(self._sessions):
            session.transport.abort(device.SHUTDOWN)

    async def _drain(self) -> None:
        """Ask devices to leave, evenly over time, so that the other nodes get them little by little."""
        for call in self.on_drain:
            call()
        loop = asyncio.get_running_loop()
        began, total = loop.time(), len(self._sessions)
        while self._sessions and (passed := loop.time() - began) < self._drain_seconds + FAREWELL:
            due = min(total, math.ceil(total * (passed + DRAIN_STEP) / self._drain_seconds))
            here = [session for session in self._sessions if session not in self._leaving]
            for session in here[: due - (total - len(here))]:
                self._close(session, device.SHUTDOWN)
            await asyncio.sleep(DRAIN_STEP)
            self.run_once()

    def run_once(self) -> None:
        """Cut off what was closed and is still there, close what is late; of the next part of the connections, close
        what is idle, and cut off whoever does not read."""
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
                # Nothing that it sent was answered for so long, if it is we who do not read.
                self._close(session, device.OVERLOADED if transport.is_held else device.IDLE)

    def _next_part(self) -> Iterator[Session]:
        part = list(itertools.islice(self._round, self._part))
        if len(part) < self._part:
            # Those that have come since are looked at in the next round.
            self._part = max(1, math.ceil(len(self._sessions) / PARTS))
            self._round = iter(list(self._sessions))
        return (session for session in part if session in self._sessions)

    def _close_late(self, now: float) -> None:
        for session, deadline in list(self._newcomers.items()):
            if not session.is_new:
                del self._newcomers[session]
            elif now < deadline:
                return
            elif session.is_waiting_for_login:
                del self._newcomers[session]
                REFUSED.labels(LATE).inc()
                self._close(session, device.NO_LOGIN)

    def _close(self, session: Session, reason: str) -> None:
        if session not in self._leaving:
            self._leaving[session] = asyncio.get_running_loop().time() + FAREWELL
            session.close(reason)
