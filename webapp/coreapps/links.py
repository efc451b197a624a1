"""Requests to the Coreapps, as the APIs make them: about one number, or to all Coreapps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from tidings.net.exposure import ON_THIS_MACHINE, LinkCalls
from tidings.storage.business.shards import Owner
from webapp.coreapps.connections import MAX_WAITING, CoreappConnections, ShardTarget
from webapp.coreapps.interfaces import Make, Response
from webapp.coreapps.peer import STALL
from webapp.coreapps.shard_map import Coreapp, ShardMap
from webapp.coreapps.shard_requests import ShardRequests
from webapp.http.errors import CoreappUnavailable, CoreappUnreachable


class NumberLinks:
    """Sends requests about one number to the owners of its shards."""

    def __init__(self, connections: CoreappConnections, requests: ShardRequests, block: int) -> None:
        """Create the requests of the number with this shard block."""
        self.connections = connections
        self._requests = requests
        self.block = block

    async def call(self, recipient: str, make: Make, expect: type[Response], *, again: Make | None = None) -> Response:
        """Send a request to the owner of a recipient's shard, and return the response.

        Raises the errors of `ShardRequests.call`.

        again: creates the request to send when the response to the first one was lost; `None` when it must not be
            repeated
        """
        return await self._requests.call(ShardTarget(self.block, recipient), make, expect, again)

    async def call_primary(
        self, make: Make, expect: type[Response], *, again: Make | None = None, version: int = 0
    ) -> Response:
        """Send a request to the owner of the first shard, for data that belongs to no other shard.

        Raises the errors of `call`.

        version: as in `PrimaryCoreappOfNumber`
        """
        return await self._requests.call(ShardTarget(self.block), make, expect, again, version=version)

    async def call_repeatable(self, recipient: str, make: Make, expect: type[Response]) -> Response:
        """Send a request that may be repeated any number of times to the owner of a recipient's shard.

        Raises the errors of `call`.
        """
        return await self._requests.call(ShardTarget(self.block, recipient), make, expect, make)

    async def call_primary_repeatable(self, make: Make, expect: type[Response]) -> Response:
        """Send a request that may be repeated any number of times to the owner of the first shard.

        Raises the errors of `call`.
        """
        return await self._requests.call(ShardTarget(self.block), make, expect, make)

    async def call_all(
        self, make: Make, expect: type[Response], *, timeout: float
    ) -> list[Response | CoreappUnavailable]:
        """Send a request to each shard owner that is connected now. Those that do not respond return
        `CoreappUnavailable`.

        Shards without a connected owner count as one owner that does not respond.
        """
        found = await self.call_each(make, expect, timeout=timeout)
        responses = [response for coreapp, response in found if coreapp.shards]
        is_listed = any(not coreapp.address for coreapp, _ in found)
        if not is_listed and not all(owner.address for owner in self._owners()):
            responses.append(CoreappUnreachable("no Coreapp owns the shard"))
        return responses

    async def call_each(
        self, make: Make, expect: type[Response], *, timeout: float
    ) -> list[tuple[Coreapp, Response | CoreappUnavailable]]:
        """Send a request as `call_all` does, also to standby and lost Coreapps.

        Returns each Coreapp with its response.
        """
        coreapps = self.coreapps()
        found = await asyncio.gather(*(self._call_one(one.address, make, expect, timeout) for one in coreapps))
        return list(zip(coreapps, found, strict=True))

    def coreapps(self) -> Sequence[Coreapp]:
        """Return all Coreapps, each with its shards of this number."""
        return self.connections.coreapps_of(self.block)

    def unreached(self) -> Mapping[str, float]:
        """Return the seconds since the first failed call, by the address of each live Coreapp that is not reached."""
        return self.connections.unreached()

    @property
    def has_shards(self) -> bool:
        """Return whether the number has several shards."""
        return self.connections.has_shards_of(self.block)

    @property
    def has_contacts_by_shard(self) -> bool:
        """Return whether contacts are requested from the shard of each.

        False while an owner is not connected or has an earlier release.
        """
        return self.connections.has_contacts_by_shard_of(self.block)

    def shard_of(self, recipient: str) -> int:
        """Return the number of a recipient's shard, according to the last known shard map."""
        return self.connections.shard_at(ShardTarget(self.block, recipient))

    def owner(self, recipient: str | None) -> Owner | None:
        """Return the owner of a shard: a recipient's, or the first one for `None`. Returns `None` when it is
        unknown.
        """
        return self.connections.owner_at(ShardTarget(self.block, recipient))

    def _owners(self) -> Sequence[Owner]:
        return self.connections.owners_of(self.block)

    async def _call_one(
        self, address: str, make: Make, expect: type[Response], timeout: float
    ) -> Response | CoreappUnavailable:
        peer = self.connections.peer_at(address)
        if peer is None or not peer.is_ready:
            return CoreappUnreachable(f"the Coreapp at {address} cannot be reached")
        try:
            response = await peer.call(make, timeout)
        except CoreappUnavailable as away:
            return away
        if isinstance(response, expect):
            return response
        return CoreappUnavailable(f"the Coreapp at {address} sent an invalid response")


class CoreappLinks(NumberLinks):
    """Sends requests about the first number, and those to all Coreapps with the shards of all numbers."""

    def __init__(
        self,
        shard_map: ShardMap,
        key: str,
        *,
        owner_timeout: float,
        timeout: float,
        stall: float = STALL,
        max_waiting: int = MAX_WAITING,
        calls: LinkCalls = ON_THIS_MACHINE,
        block_of: Callable[[str], int] = lambda account: 0,
    ) -> None:
        """Create the connections, which `connections` runs, and the requests over them.

        block_of: returns the shard block of a number
        """
        connections = CoreappConnections(shard_map, key, stall=stall, max_waiting=max_waiting, calls=calls)
        super().__init__(connections, ShardRequests(connections, owner_timeout=owner_timeout, timeout=timeout), 0)
        self._block_of = block_of
        self._numbers: dict[int, NumberLinks] = {}

    def of(self, account: str) -> NumberLinks:
        """Return the requests about one number."""
        block = self._block_of(account)
        found = self._numbers.get(block)
        if found is None:
            found = self._numbers[block] = NumberLinks(self.connections, self._requests, block)
        return found

    def coreapps(self) -> Sequence[Coreapp]:
        """Return the Coreapps that own a shard, stand by or are lost, sorted by address."""
        return self.connections.coreapps()

    def _owners(self) -> Sequence[Owner]:
        return self.connections.owners()
