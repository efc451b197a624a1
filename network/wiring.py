"""Wiring of the directory and the router, alone or with the other nodes of the network."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import Gauge

from network.cluster.frames import Load
from network.cluster.links import NodeLinks
from network.cluster.membership import NodeMembership
from network.cluster.node import ClusterNode
from network.cluster.redis_client import RedisClient, RedisUnavailable
from network.connections.connections import Connections
from network.context import NetworkContext
from network.devices.registrations import Registrations
from network.directory.directory import Directory
from network.errors import CannotJoin
from network.routing.mailbox import SqlMailbox
from network.routing.mailbox_usage import MailboxUsages
from network.routing.router import Router
from network.routing.sequence import NodeSequenceNumbers, SequenceNumbers
from network.routing.shared_router import SharedRouter
from network.settings import Settings
from tidings.aio.clock import Clock
from tidings.aio.service import Service, wait_for
from tidings.net.tls import FileContext
from tidings.storage.database import Database

LOAD = Gauge("tidings_network_load", "Share of one core that this process used in the last second")
LAG = Gauge("tidings_network_loop_lag_seconds", "Maximum delay of the event loop in the last second")
RATE = Gauge("tidings_network_envelopes_per_second", "Envelopes per second, from senders and to devices")

# Seconds between two samples of the event loop's lag, and samples in one measurement.
TICK, TICKS = 0.1, 10


class LoadGauge:
    """Service that measures the load of this process once a second.

    load: share of one processor core that was used; near 1 the process is at its limit.
    lag: longest delay of the event loop, seconds.
    rate: envelopes per second, from senders and to devices.
    """

    name = "load"

    def __init__(self, handled: Callable[[], int]) -> None:
        """handled: return the number of envelopes received and delivered since the start."""
        self._handled = handled
        self.load = self.lag = self.rate = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            began, used, handled, lag = loop.time(), time.process_time(), self._handled(), 0.0
            for _ in range(TICKS):
                due = loop.time() + TICK
                if await wait_for(stop, TICK):
                    return
                lag = max(lag, loop.time() - due)
            self.note(loop.time() - began, time.process_time() - used, self._handled() - handled, lag)

    def note(self, seconds: float, used: float, handled: int, lag: float) -> None:
        """Record one measurement.

        seconds: wall-clock time that passed.
        used: processor time used in it, seconds.
        handled: envelopes received and delivered in it.
        lag: longest delay of the event loop in it, seconds.
        """
        self.load, self.lag, self.rate = used / seconds, lag, handled / seconds
        LOAD.set(self.load)
        LAG.set(self.lag)
        RATE.set(self.rate)


log = logging.getLogger(__name__)

# Seconds that Redis has to respond at the start, and between two attempts.
START_SECONDS, RETRY_SECONDS = 10.0, 0.5


@dataclasses.dataclass(eq=False)
class Routing:
    """The router with its store and directory; with Redis it is one of several nodes."""

    settings: Settings
    database: Database
    clock: Clock
    # Set by `open`.
    context: NetworkContext = dataclasses.field(init=False)
    # `None` when there are no other nodes.
    node: ClusterNode | None = None
    # Connections of this process; `None` until `share`.
    connections: Connections | None = None

    def __post_init__(self) -> None:
        self.load = LoadGauge(lambda: self.context.router.handled)

    async def open(self) -> NetworkContext:
        """Create the router, and join the other nodes where Redis is set.

        Raises `CannotJoin`, `CannotListen`, and the database's error when it cannot be reached.
        """
        settings, clock = self.settings, self.clock
        store = SqlMailbox(self.database)
        directory = Directory(self.database, settings.rate_limits, clock, trusted=settings.trusted_proxies)
        mailbox_usages = MailboxUsages(store, settings.quotas, clock, weight_of=directory.rate_limits.weight_of)
        parts, last_seq = (store, directory.recipients, mailbox_usages), await store.last_seq()
        options: dict[str, Any] = {
            "clock": clock,
            "limits": settings.limits,
            "ttl": settings.message_ttl,
            # Only businesses may trace: recipients must not create traces that the operator pays for.
            "traced": settings.rate_limits.businesses,
        }
        if not settings.cluster.url:
            return self._with(directory, Router(*parts, numbers=SequenceNumbers(clock, last_seq), **options))
        server = RedisClient(settings.cluster)
        membership = NodeMembership(server, settings.cluster, self.measure)
        links = NodeLinks(membership, settings.cluster, settings.tls_files)
        try:
            await _reach(server, membership)
            # Sequence numbers of all nodes follow the same time, even if this node's clock is changed.
            numbers = NodeSequenceNumbers(membership.clock, last_seq, membership.node_index)
            mailbox_usages.is_shared = True
            router = SharedRouter(*parts, numbers=numbers, **options)
            self.node = ClusterNode(server, membership, links, router, directory, store)
            router.join(self.node.exchange)
            directory.join(self.node)
            context = self._with(directory, router)
            await self.node.join()
        except BaseException as error:
            links.close()
            await server.close()
            if isinstance(error, RedisUnavailable):
                raise _redis_away(error) from error
            raise
        return context

    def _with(self, directory: Directory, router: Router) -> NetworkContext:
        self.context = NetworkContext(
            self.settings, self.database, self.clock, directory, router.mailbox_usages, router
        )
        return self.context

    def share(self, connections: Connections, registrations: Registrations) -> None:
        """Connect the parts that must cooperate with other nodes."""
        self.connections = connections
        if self.node is not None:
            self.node.notify_askers = registrations.notify_askers

    def read_all_mailboxes(self) -> None:
        """Request a check of all mailboxes: envelopes were stored for devices that may be attached to other nodes."""
        if self.node is not None:
            self.node.exchange.relocation_check.has_unlocated = True

    @property
    def contexts(self) -> Sequence[FileContext | None]:
        """Return the TLS contexts of the links between nodes."""
        return self.node.links.contexts if self.node is not None else ()

    def services(self) -> Sequence[Service]:
        """Return the services in the order in which they start."""
        return [self.load, *(self.node.services() if self.node is not None else ())]

    async def close(self) -> None:
        """Leave the cluster."""
        if self.node is not None:
            await self.node.leave()

    async def broadcast(self, id: str, text: bytes) -> tuple[int, int]:
        """Announce to all attached devices of all nodes; return the number of devices and the number of nodes."""
        if self.node is not None:
            return await self.node.broadcast(id, text)
        return await self.context.router.announce(id, text), 1

    # Status of this node.

    @property
    def is_draining(self) -> bool:
        """Return whether devices are being disconnected because the process stops."""
        return self.connections is not None and self.connections.is_draining

    @property
    def is_ready(self) -> bool:
        """Return whether the node is in touch with the other nodes and is not draining."""
        return (self.node is None or self.node.membership.is_redis_up) and not self.is_draining

    def measure(self) -> Load:
        """Return the load of this process."""
        return Load(
            name=self.settings.cluster.node,
            load=round(self.load.load, 3),
            lag=round(self.load.lag, 4),
            connections=len(self.connections) if self.connections is not None else 0,
            devices=self.context.router.online,
            rate=round(self.load.rate, 1),
            draining=self.is_draining,
        )

    def describe(self) -> dict[str, Any]:
        """Return what makes this node unready, and the state of the cluster."""
        described: dict[str, Any] = {"draining": True} if self.is_draining else {}
        if self.node is not None:
            membership = self.node.membership
            described["redis"] = "ok" if membership.is_redis_up else "away"
            described["node"] = membership.me
            described["nodes"] = len(membership.nodes)
        return described

    def describe_load(self) -> dict[str, Any]:
        """Return the load of this process, and that of the other nodes as last announced."""
        described = _describe(self.measure())
        if self.node is not None:
            loads = sorted(self.node.membership.loads.items())
            described["nodes"] = {node: _describe(load) for node, load in loads}
        return described


def _describe(load: Load) -> dict[str, Any]:
    return {
        "node": load.name,
        "draining": load.draining,
        "load": load.load,
        "loop_lag_seconds": load.lag,
        "envelopes_per_second": load.rate,
        "connections": load.connections,
        "devices": load.devices,
    }


async def _reach(server: RedisClient, membership: NodeMembership) -> None:
    """Connect to Redis and reserve a slot among the nodes. Raises `CannotJoin`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_SECONDS
    while True:
        try:
            await server.open()
            await membership.reserve()
            return
        except RedisUnavailable as error:
            if loop.time() > deadline:
                raise _redis_away(error) from error
            log.warning("redis.awaited", extra={"error": str(error)})
        await asyncio.sleep(RETRY_SECONDS)


def _redis_away(error: RedisUnavailable) -> CannotJoin:
    return CannotJoin(f"TIDINGS_REDIS_URL: Redis does not respond: {error}")
