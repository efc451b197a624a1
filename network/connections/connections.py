"""All open connections: limits before a login, idle ones, and their end when the process stops."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import math
from collections.abc import Callable, Iterator

from prometheus_client import Counter, Gauge

from network.connections.backend import Backend
from network.connections.session import DeviceSession
from network.settings import Limits
from tidings.aio.clock import Clock
from tidings.aio.service import wait_for
from tidings.net.unauthenticated import Bounds, Network, UnauthenticatedClients, UnauthenticatedConnection
from tidings.wire import device
from tidings.wire.unfinished import IncompleteFrames

log = logging.getLogger(__name__)

OPEN = Gauge("tidings_network_connections", "Open connections")
UNAUTHENTICATED = Gauge("tidings_network_unauthenticated_connections", "Live connections without a login")
REFUSED = Counter(
    "tidings_network_unauthenticated_connections_refused_total",
    "Live connections refused or closed before a login",
    ["why"],
)

# Tokens per second and tokens at once, of one address and of all addresses together. A connection consumes one token,
# and so does each login until one succeeds. A login refunds what its connection consumed. A connection with a failing
# login costs about 2 ms of CPU.
EACH_RATE, EACH_BURST = 10.0, 60.0
ALL_RATE, ALL_BURST = 30.0, 200.0
# Close grace period in seconds: time that peers have to read the last frames when the process stops.
CLOSE_GRACE = 5.0
# Seconds between two checks of a part of the connections: checking 20,000 at once would block the loop for 15 ms.
TICK = 0.05
# Seconds in which each connection is checked once, and at most a twelfth of the idle time-out. A check reads memory
# that no cache holds: with 500,000 connections, checks once a second took 0.5 of a core.
ROUND = 5.0
# Seconds between two steps of draining.
DRAIN_STEP = 0.1
# Seconds, at the end, for storing everything undecided in the mailboxes.
STORING = 8.0


def make_unauthenticated(clock: Clock, limits: Limits, trusted: tuple[Network, ...] = ()) -> UnauthenticatedClients:
    """Return the limits on live connections without a login."""
    return UnauthenticatedClients(
        clock,
        each=Bounds(limits.unauthenticated_each, EACH_RATE, EACH_BURST),
        together=Bounds(limits.unauthenticated, ALL_RATE, ALL_BURST),
        trusted=trusted,
        refused=REFUSED,
    )


@dataclasses.dataclass(slots=True, eq=False)
class Connections:
    """Service that closes idle connections. Its stop ends the process in order.

    On stop, new connections are refused and devices are disconnected one by one over `drain` seconds. Then everything
    undecided is stored and its senders are notified. Remaining connections are closed as `shutdown`.
    """

    name = "connections"

    backend: Backend
    # Seconds over which devices are disconnected.
    drain_seconds: float = 0.0
    # Called when the service starts to stop, so that no more connections are accepted.
    on_drain: list[Callable[[], object]] = dataclasses.field(default_factory=list)
    # Whether the service has started to stop.
    is_draining: bool = False
    # Whether everything undecided is being stored, so that further frames are ignored.
    is_stopping: bool = False
    unfinished: IncompleteFrames = dataclasses.field(default_factory=IncompleteFrames)
    _sessions: set[DeviceSession] = dataclasses.field(default_factory=set)
    # Sessions that are still to be checked in this round.
    _round: Iterator[DeviceSession] = dataclasses.field(default_factory=lambda: iter(()))
    _part: int = 1
    _gone: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        UNAUTHENTICATED.set_function(self.backend.unauthenticated.__len__)

    def __len__(self) -> int:
        return len(self._sessions)

    def take_slot(self, host: str, tokens: float) -> UnauthenticatedConnection | None:
        """Return a slot for a connection about to be opened, `None` when this address may have none now.

        tokens: rate-limit tokens that the connection costs.
        """
        return self.backend.unauthenticated.admit(host, tokens)

    def client_of(self, host: str, forwarded: str | None) -> str:
        """Return the client's address: the peer's, or the one that a trusted proxy names in `X-Forwarded-For`."""
        return self.backend.unauthenticated.client_of(host, forwarded.encode() if forwarded else None)

    def session(self, slot: UnauthenticatedConnection) -> DeviceSession:
        """Return the handler of a connection about to be opened; the connection gives the slot back."""
        return DeviceSession(self, self.backend, slot)

    def opened(self, session: DeviceSession) -> None:
        """Register a new connection. It may be closed again at once, with a reason."""
        self._sessions.add(session)
        OPEN.set(len(self._sessions))
        if self.is_draining:
            session.close(device.SHUTDOWN)
        elif len(self._sessions) > self.backend.limits.connections:
            session.close(device.OVERLOADED)

    def closed(self, session: DeviceSession) -> None:
        """Remove a closed connection."""
        self._sessions.discard(session)
        self._gone.set()
        OPEN.set(len(self._sessions))

    async def run(self, stop: asyncio.Event) -> None:
        while not await wait_for(stop, TICK):
            self.run_once()
        self.is_draining = True
        if self.drain_seconds:
            await self._drain()
        self.is_stopping = True
        try:
            async with asyncio.timeout(STORING):
                await self.backend.directory.other_nodes.close()
                # The router stores copies of the last group messages, which are then deleted.
                await self.backend.copies.close()
                await self.backend.router.close()
                await self.backend.kept.close()
        except TimeoutError:
            # Their senders have received no response and will send them again.
            log.warning("connections.undecided", extra={"envelopes": self.backend.router.undecided})
        # `Accepted` frames for the last batch are sent in the next event-loop iteration.
        await asyncio.sleep(0)
        for session in list(self._sessions):
            session.close(device.SHUTDOWN)
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
        while self._sessions and (passed := loop.time() - began) < self.drain_seconds + CLOSE_GRACE:
            due = min(total, math.ceil(total * (passed + DRAIN_STEP) / self.drain_seconds))
            here = [session for session in self._sessions if session.transport.is_open]
            for session in here[: due - (total - len(here))]:
                session.close(device.SHUTDOWN)
            await asyncio.sleep(DRAIN_STEP)
            self.run_once()

    def run_once(self) -> None:
        """In the next part of the connections, close those that are idle and ping those that are due."""
        now = asyncio.get_running_loop().time()
        self.unfinished.check(now)
        for session in self._next_part():
            transport = session.transport
            transport.ping(now)
            if transport.is_open and now - transport.last_received > self.backend.limits.idle:
                # If reading was stopped on this side, the peer is not idle: its frames have waited for that long.
                session.close(device.OVERLOADED if transport.is_held else device.IDLE)

    def _next_part(self) -> Iterator[DeviceSession]:
        part = list(itertools.islice(self._round, self._part))
        if len(part) < self._part:
            # Connections opened since then are checked in the next round.
            parts = max(1.0, min(ROUND, self.backend.limits.idle / 12) / TICK)
            self._part = max(1, math.ceil(len(self._sessions) / parts))
            self._round = iter(list(self._sessions))
        return (session for session in part if session in self._sessions)
