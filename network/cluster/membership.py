"""Who is there: every node says so again and again, and is believed for a few seconds."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from prometheus_client import Gauge

from network.cluster import frames, scripts
from network.cluster.frames import LinkAddress, Load
from network.cluster.server import RedisAway, Script, Server
from network.cluster.shared_clock import SharedClock
from network.routing.sequence import SLOTS
from network.settings import Cluster
from tidings.runtime.clock import Clock, SystemClock
from tidings.runtime.service import wait_for

log = logging.getLogger(__name__)

NODES = Gauge("tidings_network_nodes", "Nodes of the network that this one knows of, itself included")
IN_TOUCH = Gauge("tidings_network_redis_up", "1 while Redis answers this node")

HEARTBEAT = 1.0  # seconds
# Seconds that a slot of sequence numbers is kept for a node that says nothing, which may stand still for so long.
SLOT_SECONDS = 24 * 3600
# The same for where a node is called.
LINK_SECONDS = 60

_BEAT = Script(scripts.BEAT)
_decoder = msgspec.json.Decoder(Load)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What a heartbeat has found: incarnations that have come and that have gone; was this one believed dead?"""

    came: frozenset[str]
    gone: frozenset[str]
    was_away: bool


_NONE = Change(frozenset(), frozenset(), was_away=False)


class Membership:
    """Service: this node's heartbeat, and the other nodes' as it knows them.

    me:       the incarnation of this process: the name of the node, and something that no other process has.
    slot:     of its sequence numbers, which no other node has.
    nodes:    incarnations that are there, as of the last heartbeat.
    loads:    what each of them has to do, by incarnation.
    in_touch: did Redis answer the last heartbeat?
    link:     where others call this process, once it can be.
    clock:    of Redis, as of the heartbeats.
    """

    name = "membership"

    def __init__(
        self, server: Server, settings: Cluster, measure: Callable[[], Load], *, clock: Clock | None = None
    ) -> None:
        """clock: the system's when it is `None`."""
        self.clock = SharedClock(clock or SystemClock())
        self._server = server
        self._silence = settings.silence
        self._measure = measure
        self.me = f"{settings.node}.{secrets.token_hex(6)}"
        self.slot = 0
        self.nodes: frozenset[str] = frozenset({self.me})
        self.loads: Mapping[str, Load] = {}
        self.in_touch = False
        self.link: LinkAddress | None = None
        self._key, self._loads_key = server.key("nodes"), server.key("loads")
        # What is to be done about changes.
        self.on_change: Callable[[Change], Awaitable[None]] | None = None
        self._change = _NONE
        # What answered the last heartbeat. Another server, after a fail-over, may not have the last claims.
        self._servers: tuple[bytes, frozenset[str]] | None = None

    async def reserve(self) -> None:
        """Take a slot. Raises `RedisAway`."""
        while True:
            self.slot = secrets.randbelow(SLOTS)
            if await self._server.take(self._slot_key, self.me, SLOT_SECONDS):
                break

    async def join(self, link: LinkAddress) -> None:
        """Be there from now on. Raises `RedisAway`."""
        self.link = link
        await self.beat()
        self._change = _NONE
        log.info("cluster.joined", extra={"node": self.me, "slot": self.slot, "nodes": len(self.nodes)})

    async def leave(self) -> None:
        """Be there no more, which the others learn at their next heartbeat."""
        try:
            await self._server.leave(self._key, self.me)
            await self._server.delete_fields(self._loads_key, [self.me])
            await self._server.remove(self._slot_key)
            await self._server.remove(self._link_key(self.me))
        except RedisAway as error:
            log.warning("cluster.not_left", extra={"error": str(error)})

    async def find_link(self, node: str) -> LinkAddress | None:
        """Where another process is called, if it has said so. Raises `RedisAway`, and `MsgspecError` for what one of
        another version has said."""
        found = await self._server.get(self._link_key(node))
        return None if found is None else frames.decode_address(found)

    async def run(self, stop: asyncio.Event) -> None:
        beats = 0
        while not await wait_for(stop, HEARTBEAT):
            beats += 1
            await self.run_once(renew=beats % 600 == 0)

    async def run_once(self, *, renew: bool = False) -> None:
        """One heartbeat. renew: of the slot too."""
        try:
            await self.beat()
            if renew:
                await self._server.renew(self._slot_key, self.me, SLOT_SECONDS)
        except RedisAway as error:
            if self.in_touch:
                log.warning("redis.away", extra={"error": str(error)})
            self.in_touch = False
            IN_TOUCH.set(0)
            return
        change, self._change = self._change, _NONE
        if self.on_change is not None and change != _NONE:
            await self.on_change(change)

    async def beat(self) -> None:
        """Say that this node is there, and learn who else is. Raises `RedisAway`."""
        if self.link is not None:
            # Before anybody learns of this process, and has something to say to it.
            await self._server.renew(self._link_key(self.me), msgspec.json.encode(self.link), LINK_SECONDS)
        asked = self.clock.start()
        known, run_id, now, *members = await self._server.run(_BEAT, self._key, self.me, int(self._silence * 1000))
        self.clock.learn(asked, int(now) / 1_000_000)
        found = frozenset(filter(None, map(_decode, members)))
        servers = run_id, self._server.primaries
        was_away = not self.in_touch or known != b"1" or servers != self._servers
        if self._servers is not None and servers != self._servers:
            log.info("redis.replaced", extra={"node": self.me})
        self._servers = servers
        before, now = self._change, found - self.nodes
        self._change = Change(
            (before.came | now) & found, before.gone | (self.nodes - found), before.was_away or was_away
        )
        self.nodes = found
        await self._exchange_loads()
        if not self.in_touch:
            log.info("redis.answers", extra={"nodes": len(found)})
        self.in_touch = True
        IN_TOUCH.set(1)
        NODES.set(len(found))

    async def _exchange_loads(self) -> None:
        await self._server.set_field(self._loads_key, self.me, msgspec.json.encode(self._measure()))
        found = await self._server.fields(self._loads_key)
        if dead := [field for field in found if _decode(field) not in self.nodes]:
            await self._server.delete_fields(self._loads_key, dead)
        loads = {_decode(field): value for field, value in found.items()}
        self.loads = readable_loads({node: value for node, value in loads.items() if node in self.nodes})

    def _link_key(self, node: str) -> str:
        return self._server.key("link", node)

    @property
    def _slot_key(self) -> str:
        return self._server.key("slot", str(self.slot))


def _decode(name: bytes) -> str:
    # No node writes anything else: "" is the name of none.
    return name.decode() if name.isascii() else ""


def readable_loads(found: Mapping[str, bytes]) -> Mapping[str, Load]:
    """What nodes say of themselves, without those of another version that this one cannot read."""
    loads = {}
    for node, value in found.items():
        try:
            loads[node] = _decoder.decode(value)
        except msgspec.MsgspecError as error:
            log.debug("load.unreadable", extra={"node": node, "error": str(error)[:200]})
    return loads
