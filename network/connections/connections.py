"""All open connections: how many there may be, which are silent for too long, and the end of all of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from prometheus_client import Gauge

from network.connections.places import LATE, REFUSED, Place
from network.connections.session import Backend, Session
from network.connections.transport import Transport
from network.routing.router import Router
from tidings.runtime.service import wait_for
from tidings.wire import device
from tidings.wire.unfinished import Unfinished

log = logging.getLogger(__name__)

OPEN = Gauge("tidings_network_connections", "Open connections")

# Seconds that a connection which we close has to take the last frames; then it is cut off.
FAREWELL = 5.0
# Seconds that the mailbox has, at the end, to take everything undecided.
STORING = 8.0


class Connections:
    """Service that closes connections that are idle or late; its stop is the orderly end of the process.

    Stop: nothing new is accepted; everything undecided is stored and its senders told; every device hears `shutdown`.
    """

    name = "connections"

    def __init__(self, backend: Backend, router: Router) -> None:
        self._backend = backend
        self._router = router
        self.unfinished = Unfinished()
        # Those on which nobody has logged in yet, with the loop time until which somebody may, in this order.
        self._newcomers: dict[Session, float] = {}
        self._sessions: set[Session] = set()
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
        if self._stopping:
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
        while not await wait_for(stop, min(1.0, limits.idle / 4, limits.login / 4)):
            self.run_once()
        self._stopping = True
        try:
            async with asyncio.timeout(STORING):
                await asyncio.gather(self._backend.copies.close(), self._router.close())
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

    def run_once(self) -> None:
        """Close what is idle or late, and cut off what was closed and is still there, and whoever does not read."""
        now = asyncio.get_running_loop().time()
        self.unfinished.check(now)
        for session, deadline in list(self._leaving.items()):
            if now >= deadline:
                session.transport.abort("it did not take the last frames")
        self._close_late(now)
        for session in list(self._sessions):
            transport = session.transport
            transport.check_reader(now)
            if session not in self._leaving and now - transport.last_received > self._backend.limits.idle:
                # Nothing that it sent was answered for so long, if it is we who do not read.
                self._close(session, device.OVERLOADED if transport.is_held else device.IDLE)

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
