"""Connections to the Coreapps: one per shard owner in the shard map, and one per standby."""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prometheus_client import Gauge

from tidings.aio.service import Wakeup
from tidings.net.exposure import ON_THIS_MACHINE, LinkCalls
from tidings.storage.business import shard_blocks
from tidings.storage.business.nodes import NodeRecord
from tidings.storage.business.shards import Owner
from tidings.wire import addresses
from webapp.coreapps.peer import STALL, Peer
from webapp.coreapps.shard_map import Coreapp, FixedShardMap, ShardMap, list_coreapps
from webapp.http.errors import CoreappUnreachable, Overloaded

log = logging.getLogger(__name__)

SHARDS = Gauge(
    "tidings_webapp_shards", "Shards, by whether this Webapp is connected to a Coreapp that owns them", ["state"]
)

# Seconds between two polls of the shard map: while every owner is connected, and while one is not.
POLL_CONNECTED, POLL_DISCONNECTED = 1.0, 0.25
# Requests that may wait for a Coreapp to return. A further one is refused with `Overloaded`.
MAX_WAITING = 5_000
# Close grace period, in seconds: time for the remaining responses of a Coreapp after others own its shards.
CLOSE_GRACE = 2.0


class ShardTarget(NamedTuple):
    """Shard that a request is for."""

    block: int  # shard block of the number
    recipient: str | None = None  # recipient whose shard it is; `None` for the number's first shard


class CoreappConnections:
    """Service that polls the shard map and keeps a connection to each Coreapp in it."""

    name = "coreapp-links"

    def __init__(
        self,
        shard_map: ShardMap,
        key: str,
        *,
        stall: float = STALL,
        max_waiting: int = MAX_WAITING,
        calls: LinkCalls = ON_THIS_MACHINE,
    ) -> None:
        """Create the service, at first without connections.

        stall: seconds without an accepted message after which messages are given up
        max_waiting: requests that may wait for a Coreapp to return
        calls: verification of the Coreapps
        """
        self._calls = calls
        self._map = shard_map
        # Whether the map's one entry stands for all shards of all numbers.
        self._is_fixed = isinstance(shard_map, FixedShardMap)
        self._key = key
        self._stall = stall
        self._max_waiting = max_waiting
        self._owners: dict[int, Owner] = {}
        self._members: Sequence[NodeRecord] = ()
        self._coreapps: Sequence[Coreapp] = ()
        # Numbers of shards by shard block.
        self._counts: Mapping[int, int] = {}
        self._peers: dict[str, Peer] = {}
        # Peers that own shards; empty while a shard has no owner.
        self._owning: Sequence[Peer] = ()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._retired: set[asyncio.Task[None]] = set()
        self._poll = Wakeup()
        self._change = asyncio.Event()
        self._waiting = 0
        self._map_problem = ""

    async def run(self, stop: asyncio.Event) -> None:
        polling = asyncio.create_task(self._keep_polling(), name=self.name)
        stopping = asyncio.create_task(stop.wait())
        SHARDS.labels("served").set_function(self._served)
        SHARDS.labels("away").set_function(lambda: len(self._owners) - self._served())
        try:
            done, _ = await asyncio.wait([polling, stopping], return_when=asyncio.FIRST_COMPLETED)
            if polling in done:
                polling.result()
        finally:
            tasks = [polling, stopping, *self._tasks.values(), *self._retired]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def run_once(self) -> None:
        """Read the shard map and connect to the Coreapps in it."""
        try:
            owners, members = await self._map.owners(), await self._map.members()
        except Exception as error:
            if not self._map_problem:
                log.warning("shards.not_read", extra={"error": repr(error)[:200]})
            self._map_problem = f"the shard map cannot be read: {type(error).__name__}"
            return
        self._map_problem = ""
        before, self._coreapps = (self._owners, self._coreapps), list_coreapps(owners, members)
        self._owners = {owner.shard: owner for owner in owners}
        self._members = members
        if (self._owners, self._coreapps) == before:
            return
        self._counts = collections.Counter(shard_blocks.block_of(shard) for shard in self._owners)
        # Standbys are connected as well, so that a new owner can be used at once.
        wanted = {one.address for one in self._coreapps if one.address and (one.shards or not one.is_lost)}
        for address in wanted - self._peers.keys():
            peer = self._peers[address] = Peer(address, self._key, self._changed, stall=self._stall, calls=self._calls)
            self._tasks[address] = asyncio.create_task(peer.run(), name=f"coreapp {address}")
        for address in self._peers.keys() - wanted:
            self._retire(self._peers.pop(address), self._tasks.pop(address))
        owning = {owner.address for owner in owners}
        self._owning = [self._peers[address] for address in owning] if owning <= self._peers.keys() else ()
        self._changed()

    def peer_at(self, address: str) -> Peer | None:
        """Return the peer of the Coreapp at an address; `None` when the shard map does not name it."""
        return self._peers.get(address)

    def coreapps(self) -> Sequence[Coreapp]:
        """Return the Coreapps that own a shard, stand by or are lost, sorted by address."""
        return self._coreapps

    def unreached(self) -> Mapping[str, float]:
        """Return the seconds since the first failed call, by the address of each live Coreapp that is not reached."""
        live = (one for one in self._coreapps if one.node and not one.is_lost)
        peers = {one.address: self._peers.get(one.address) for one in live}
        return {address: peer.unreached for address, peer in peers.items() if peer is not None and peer.unreached > 0}

    def is_overloaded(self, delay: float) -> bool:
        """Return whether every shard owner is too overloaded to accept a message that is sent in `delay` seconds.

        Standbys never receive messages.
        """
        return bool(self._owning) and all(peer.is_overloaded(delay) for peer in self._owning)

    def has_shards_of(self, block: int) -> bool:
        """Return whether a number has several shards."""
        return self._counts.get(block, 0) > 1

    def has_contacts_by_shard_of(self, block: int) -> bool:
        """Return whether contacts of a number are requested from the shard of each.

        False while an owner is not connected or has an earlier release.
        """
        is_divided = self.has_shards_of(block) and bool(self._owning)
        return is_divided and all(peer.knows_its_contacts for peer in self._owning)

    def shard_at(self, target: ShardTarget) -> int:
        """Return the shard that a request is for, according to the last known shard map."""
        first = shard_blocks.first_shard(target.block)
        if not target.recipient:
            return first
        return first + addresses.shard_of(target.recipient, self._counts.get(target.block, 1))

    def owner_at(self, target: ShardTarget) -> Owner | None:
        """Return the owner of the shard that a request is for; `None` when it is unknown."""
        return self._owners.get(0 if self._is_fixed else self.shard_at(target))

    def owners(self) -> Sequence[Owner]:
        """Return the owners of all shards."""
        return list(self._owners.values())

    def owners_of(self, block: int) -> Sequence[Owner]:
        """Return the owners of a number's shards."""
        if self._is_fixed:
            return list(self._owners.values())
        return [owner for shard, owner in self._owners.items() if shard_blocks.block_of(shard) == block]

    def coreapps_of(self, block: int) -> Sequence[Coreapp]:
        """Return the same as `coreapps`, with the shards of one number only."""
        if len(self._counts) <= 1:
            return self._coreapps
        return list_coreapps(self.owners_of(block), self._members)

    def poll(self) -> None:
        """Read the shard map now."""
        self._poll.wake()

    async def wait_for_change(self, target: ShardTarget, deadline: float) -> None:
        """Wait until owners or connections change. Raises `CoreappUnreachable` at the deadline (event-loop time), and
        `Overloaded` when too many requests wait already.
        """
        if self._waiting >= self._max_waiting:
            raise Overloaded("too many requests wait for a Coreapp")
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self._change.wait()
        except TimeoutError:
            raise CoreappUnreachable(self._describe(target)) from None
        finally:
            self._waiting -= 1

    def _describe(self, target: ShardTarget) -> str:
        owner = self.owner_at(target)
        if owner is None or not owner.address:
            return f"no Coreapp: {self._map_problem or 'no Coreapp owns the shard'}"
        peer = self._peers.get(owner.address)
        return f"the Coreapp at {owner.address} cannot be reached: {peer.problem if peer else 'connecting'}"

    def _retire(self, peer: Peer, task: asyncio.Task[None]) -> None:
        peer.retire()
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)
        asyncio.get_running_loop().call_later(CLOSE_GRACE, task.cancel)

    def _changed(self) -> None:
        # Current waiters wake up. Later ones wait for the next change.
        self._change.set()
        self._change = asyncio.Event()
        self._poll.wake()

    async def _keep_polling(self) -> None:
        while True:
            await self.run_once()
            await self._poll.wait(POLL_CONNECTED if self._is_complete() else POLL_DISCONNECTED)

    def _is_complete(self) -> bool:
        return bool(self._owners) and self._served() == len(self._owners)

    def _served(self) -> int:
        """Return the number of shards whose owner is connected."""
        peers = [self._peers.get(owner.address) for owner in list(self._owners.values())]
        return sum(1 for peer in peers if peer is not None and peer.is_ready)
