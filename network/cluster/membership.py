"""Membership of the cluster: each node sends heartbeats through Redis, and counts as alive for a few seconds after
each.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from prometheus_client import Gauge

from network.cluster import frames, scripts
from network.cluster.frames import LinkAddress, Load
from network.cluster.redis_client import RedisClient, RedisUnavailable, Script
from network.cluster.shared_clock import SharedClock
from network.routing.sequence import NODE_INDEXES
from network.settings import Cluster
from tidings.aio.clock import SystemClock
from tidings.aio.membership import Membership

log = logging.getLogger(__name__)

NODES = Gauge("tidings_network_nodes", "Nodes of the network that this node knows, including itself")
REDIS_UP = Gauge("tidings_network_redis_up", "1 while Redis responds to this node")

HEARTBEAT = 1.0  # Seconds between two heartbeats.
# Seconds that the index of a silent node stays reserved; a node may be suspended for that long.
NODE_INDEX_SECONDS = 24 * 3600
# Seconds that a node's link address stays in Redis without renewal.
LINK_SECONDS = 60

_BEAT = Script(scripts.BEAT)
_decoder = msgspec.json.Decoder(Load)


@dataclasses.dataclass(frozen=True, slots=True)
class MembershipChange:
    """Result of a heartbeat."""

    joined: frozenset[str]  # Incarnations that have joined.
    left: frozenset[str]  # Incarnations that have left.
    was_away: bool  # Whether the others considered this node dead, or Redis was unreachable or replaced.


_NO_CHANGE = MembershipChange(frozenset(), frozenset(), was_away=False)


class NodeMembership(Membership):
    """Service with this node's heartbeat and its view of the other nodes.

    me: incarnation of this process: the node's name and a random part.
    node_index: part of its sequence numbers, unique in the cluster.
    nodes: live incarnations as of the last heartbeat.
    loads: load of each of them, by incarnation.
    is_redis_up: whether Redis responded to the last heartbeat.
    link: address of this process for other nodes; `None` until it listens.
    clock: clock of Redis, estimated from the heartbeats.
    """

    interval = HEARTBEAT
    events = "cluster"

    def __init__(self, server: RedisClient, settings: Cluster, measure: Callable[[], Load]) -> None:
        """measure: return the load of this process."""
        self.clock = SharedClock(SystemClock())
        self._server = server
        self._heartbeat_timeout = settings.heartbeat_timeout
        self._measure = measure
        self.me = f"{settings.node}.{secrets.token_hex(6)}"
        self.node_index = 0
        self.nodes: frozenset[str] = frozenset({self.me})
        self.loads: Mapping[str, Load] = {}
        self.is_redis_up = False
        self.link: LinkAddress | None = None
        self._key, self._loads_key = server.key("nodes"), server.key("loads")
        # Called with each change; `None` for no call.
        self.on_change: Callable[[MembershipChange], Awaitable[None]] | None = None
        self._beats = 0
        self._change = _NO_CHANGE
        # Servers that responded to the last heartbeat. After a fail-over the new server may lack the last claims.
        self._servers: tuple[bytes, frozenset[str]] | None = None

    async def reserve(self) -> None:
        """Reserve an index. Raises `RedisUnavailable`."""
        while True:
            self.node_index = secrets.randbelow(NODE_INDEXES)
            if await self._server.set_if_absent(self._node_index_key, self.me, NODE_INDEX_SECONDS):
                break

    async def join(self, link: LinkAddress) -> None:
        """Join the cluster. Raises `RedisUnavailable`."""
        self.link = link
        await self.beat()
        self._change = _NO_CHANGE
        log.info("cluster.joined", extra={"node": self.me, "slot": self.node_index, "nodes": len(self.nodes)})

    async def remove(self) -> None:
        """Leave the cluster; the others notice at their next heartbeat."""
        await self._server.remove_member(self._key, self.me)
        await self._server.delete_fields(self._loads_key, [self.me])
        await self._server.remove(self._node_index_key)
        await self._server.remove(self._link_key(self.me))

    async def find_link(self, node: str) -> LinkAddress | None:
        """Return the link address of another process; `None` when it has none.

        Raises `RedisUnavailable`, and `MsgspecError` for the address of a node with another version.
        """
        found = await self._server.get(self._link_key(node))
        return None if found is None else frames.decode_address(found)

    async def run_once(self) -> bool:
        """Send one heartbeat and handle the changes that it finds."""
        if not await super().run_once():
            return False
        change, self._change = self._change, _NO_CHANGE
        if self.on_change is not None and change != _NO_CHANGE:
            await self.on_change(change)
        return True

    async def renew(self) -> None:
        await self.beat()
        self._beats += 1
        if self._beats % 600 == 0:
            await self._server.set_for(self._node_index_key, self.me, NODE_INDEX_SECONDS)

    def missed(self, error: Exception) -> None:
        if not isinstance(error, RedisUnavailable):
            raise error
        if self.is_redis_up:
            log.warning("redis.away", extra={"error": str(error)})
        self.is_redis_up = False
        REDIS_UP.set(0)

    async def beat(self) -> None:
        """Send a heartbeat and read the live nodes. Raises `RedisUnavailable`."""
        if self.link is not None:
            # Before other nodes learn of this process and have frames for it.
            await self._server.set_for(self._link_key(self.me), msgspec.json.encode(self.link), LINK_SECONDS)
        requested_at = self.clock.start()
        known, run_id, now, *members = await self._server.run(
            _BEAT, self._key, self.me, int(self._heartbeat_timeout * 1000)
        )
        self.clock.learn(requested_at, int(now) / 1_000_000)
        found = frozenset(filter(None, map(_node_of, members)))
        servers = run_id, self._server.primaries
        was_away = not self.is_redis_up or known != b"1" or servers != self._servers
        if self._servers is not None and servers != self._servers:
            log.info("redis.replaced", extra={"node": self.me})
        self._servers = servers
        before, joined = self._change, found - self.nodes
        self._change = MembershipChange(
            (before.joined | joined) & found, before.left | (self.nodes - found), before.was_away or was_away
        )
        self.nodes = found
        await self._exchange_loads()
        if not self.is_redis_up:
            log.info("redis.answers", extra={"nodes": len(found)})
        self.is_redis_up = True
        REDIS_UP.set(1)
        NODES.set(len(found))

    async def _exchange_loads(self) -> None:
        await self._server.set_field(self._loads_key, self.me, msgspec.json.encode(self._measure()))
        found = await self._server.read_fields(self._loads_key)
        if dead := [field for field in found if _node_of(field) not in self.nodes]:
            await self._server.delete_fields(self._loads_key, dead)
        loads = {_node_of(field): value for field, value in found.items()}
        self.loads = readable_loads({node: value for node, value in loads.items() if node in self.nodes})

    def _link_key(self, node: str) -> str:
        return self._server.key("link", node)

    @property
    def _node_index_key(self) -> str:
        return self._server.key("slot", str(self.node_index))


def _node_of(name: bytes) -> str:
    # Nodes write only ASCII names; "" is not the name of a node.
    return name.decode() if name.isascii() else ""


def readable_loads(found: Mapping[str, bytes]) -> Mapping[str, Load]:
    """Return the loads of the nodes, without those of another version that cannot be decoded."""
    loads = {}
    for node, value in found.items():
        try:
            loads[node] = _decoder.decode(value)
        except msgspec.MsgspecError as error:
            log.debug("load.unreadable", extra={"node": node, "error": str(error)[:200]})
    return loads
