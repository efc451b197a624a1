"""How this process is: the databases that messages go through, the business's and the network's, which it tells of; and
whether its shards are at work."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from coreapp.shard.open_shards import OpenShards
from tidings.client.errors import NetworkAway, NetworkSilent
from tidings.client.http import NetworkApi
from tidings.runtime.readiness import AWAY, OK
from tidings.storage.database import Database

# Seconds that the network has to answer; it gives its database two.
TIMEOUT = 2.5


class Databases:
    """Asked when somebody wants to know, and never remembered as `connected`."""

    def __init__(self, database: Database, network: NetworkApi) -> None:
        self._database = database
        self._network = network

    async def are_alive(self) -> bool:
        """Do both answer, and take what is written?"""
        return all(await asyncio.gather(self._database.is_alive(), self._is_network_well()))

    async def _is_network_well(self) -> bool:
        """Says the network that its database is away? That it cannot be reached is for its link to tell."""
        try:
            health = await self._network.health(seconds=TIMEOUT)
        except NetworkSilent:
            return False
        except NetworkAway:
            return True
        return bool(health.get("database", "ok") == "ok")


class Needs:
    """What the process needs. Who stands by is ready to."""

    def __init__(self, databases: Databases, shards: OpenShards) -> None:
        self._databases = databases
        self._shards = shards

    async def look(self) -> Mapping[str, str]:
        """`OK` or `AWAY` for each."""
        alive = await self._databases.are_alive()
        connected = all(shard.link.connected for shard in self._shards)
        return {"database": OK if alive else AWAY, "network": OK if connected else AWAY}
