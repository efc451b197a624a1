"""Wiring of the directory and the router, alone or with the other nodes of the network."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from network.cluster.frames import Load
from network.cluster.links import NodeLinks
from network.cluster.membership import NodeMembership
from network.cluster.node import ClusterNode, Local
from network.cluster.redis_client import RedisAway, RedisClient
from network.devices.registrations import Registrations
from network.directory.bundles import PreKeyBundles
from network.directory.changes import DirectoryChanges
from network.directory.device_rate_limits import DeviceRateLimiter
from network.directory.logins import DeviceLogins
from network.directory.lookups import Lookups
from network.directory.missing_numbers import MissingNumbers
from network.directory.other_nodes import NO_NODES, OtherNodes
from network.directory.recipients import Recipients
from network.directory.refills import Refills
from network.errors import CannotJoin
from network.load import LoadGauge
from network.operator import Announcer
from network.routing.expiry import Expiry
from network.routing.mailbox import SqlMailbox
from network.routing.mailboxes import Mailboxes
from network.routing.router import Router
from network.routing.sequence import NodeSequenceNumbers, SequenceNumbers
from network.routing.shared_router import SharedRouter
from network.settings import DeviceRateLimits, Settings
from tidings.aio.clock import Clock
from tidings.aio.service import Service
from tidings.net.tls import FileContext
from tidings.storage.database import Database

log = logging.getLogger(__name__)

# Seconds that Redis has to respond at the start, and between two attempts.
START_SECONDS, RETRY_SECONDS = 10.0, 0.5


class Directory:
    """Parts of the directory package: the process's knowledge of registered devices."""

    def __init__(self, database: Database, rate_limits: DeviceRateLimits, clock: Clock) -> None:
        self.rate_limits = DeviceRateLimiter(rate_limits, clock)
        self.recipients = Recipients(database)
        self.logins = DeviceLogins(database)
        self.refills = Refills()
        self.missing_numbers = MissingNumbers()
        self.lookups = Lookups(database, self.missing_numbers)
        self.bundles = PreKeyBundles(database, self.refills, self.rate_limits)
        self.changes = DirectoryChanges(self.recipients, self.logins)
        self.other_nodes: OtherNodes = NO_NODES

    def join(self, other_nodes: OtherNodes) -> None:
        """Connect the directory to the other nodes."""
        self.other_nodes = self.bundles.other_nodes = self.changes.other_nodes = other_nodes


class OpenConnections(Protocol):
    """Connections of this process, as the load measurement sees them."""

    is_draining: bool

    def __len__(self) -> int: ...


class Routing:
    """The router with its store and directory; with Redis it is one of several nodes.

    node: `None` when there are no other nodes.
    connections: connections of this process; `None` until `share`.
    """

    def __init__(self, settings: Settings, database: Database, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._store = SqlMailbox(database)
        self.directory = Directory(database, settings.rate_limits, clock)
        weight_of = self.directory.rate_limits.weight_of
        self.mailboxes = Mailboxes(self._store, settings.quotas, clock, weight_of=weight_of)
        self.load = LoadGauge(self._count_handled)
        self.connections: OpenConnections | None = None
        self.node: ClusterNode | None = None
        self._router: Router | None = None

    async def open(self) -> None:
        """Create the router, and join the other nodes where Redis is set.

        Raises `CannotJoin`, `CannotListen`, and the database's error when it cannot be reached.
        """
        settings, clock, last_seq = self._settings, self._clock, await self._store.last_seq()
        options: dict[str, Any] = {
            "clock": clock,
            "limits": settings.limits,
            "ttl": settings.message_ttl,
            # Only businesses may trace: recipients must not create traces that the operator pays for.
            "traced": settings.rate_limits.businesses,
        }
        stands_on = self._store, self.directory.recipients, self.mailboxes
        if not settings.cluster.url:
            self._router = Router(*stands_on, numbers=SequenceNumbers(clock, last_seq), **options)
            self._announcer = Announcer(self._router)
            return
        server = RedisClient(settings.cluster)
        membership = NodeMembership(server, settings.cluster, self.measure)
        links = NodeLinks(membership, settings.cluster, settings.tls_files)
        try:
            await _reach(server, membership)
            # Sequence numbers of all nodes follow the same time, even if this node's clock is changed.
            numbers = NodeSequenceNumbers(membership.clock, last_seq, membership.slot)
            self.mailboxes.is_shared = True
            self._router = router = SharedRouter(*stands_on, numbers=numbers, **options)
            self._announcer = Announcer(router)
            directory = self.directory
            local = Local(
                router,
                directory.recipients,
                directory.logins,
                directory.refills,
                announce=self._announcer.announce,
                filled=self._store.list_filled,
            )
            self.node = node = ClusterNode(server, membership, local, links=links, clock=clock, limits=settings.limits)
            router.join(node.exchange)
            directory.join(node)
            await node.join()
        except RedisAway as error:
            await self._abandon(links, server)
            raise CannotJoin(f"TIDINGS_REDIS_URL: Redis does not answer: {error}") from error
        except BaseException:
            await self._abandon(links, server)
            raise

    async def _abandon(self, links: NodeLinks, server: RedisClient) -> None:
        links.close()
        await server.close()

    @property
    def router(self) -> Router:
        """Return the router of this process. Call it after `open`."""
        assert self._router is not None
        return self._router

    def share(self, connections: OpenConnections, expiry: Expiry, registrations: Registrations) -> None:
        """Connect the parts that must cooperate with other nodes."""
        self.connections = connections
        if self.node is not None:
            expiry.elsewhere = self.node.attached_elsewhere
            self.node.tell_askers = registrations.tell_askers

    def look_everywhere(self) -> None:
        """Request a check of all mailboxes: envelopes were stored for devices that may be attached to other nodes."""
        if self.node is not None:
            self.node.exchange.relocation_check.lost_track = True

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
        return await (self.node if self.node is not None else self._announcer).broadcast(id, text)

    # Status of this node.

    @property
    def is_ready(self) -> bool:
        """Return whether the node is in touch with the other nodes and is not draining."""
        in_touch = self.node is None or self.node.membership.in_touch
        return in_touch and not (self.connections is not None and self.connections.is_draining)

    def measure(self) -> Load:
        """Return the load of this process."""
        connections = self.connections
        return Load(
            name=self._settings.cluster.node,
            load=round(self.load.load, 3),
            lag=round(self.load.lag, 4),
            connections=len(connections) if connections is not None else 0,
            devices=self._router.online if self._router is not None else 0,
            rate=round(self.load.rate, 1),
            draining=connections is not None and connections.is_draining,
        )

    def describe(self) -> dict[str, Any]:
        """Return what is out of order on this node, and the state of the cluster."""
        described: dict[str, Any] = {}
        if self.connections is not None and self.connections.is_draining:
            described["draining"] = True
        if self.node is not None:
            membership = self.node.membership
            described["redis"] = "ok" if membership.in_touch else "away"
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

    def _count_handled(self) -> int:
        return self._router.handled if self._router is not None else 0


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
        except RedisAway as error:
            if loop.time() > deadline:
                raise CannotJoin(f"TIDINGS_REDIS_URL: Redis does not answer: {error}") from error
            log.warning("redis.awaited", extra={"error": str(error)})
        await asyncio.sleep(RETRY_SECONDS)
