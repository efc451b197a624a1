"""Whether the databases that messages go through can be used: the business's, and the network's, which it tells of."""

from __future__ import annotations

import asyncio

from tidings.client.errors import NetworkAway, NetworkSilent
from tidings.client.http import NetworkApi
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
