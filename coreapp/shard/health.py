"""Health of this process: the business's and the network's databases, through which messages go, and the state of its
shards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from coreapp.shard.open_shards import OpenShards
from tidings.aio.probe import Probe
from tidings.client.errors import NetworkTimeout, NetworkUnavailable
from tidings.client.http import NetworkApi
from tidings.objects.watch import StoreWatch
from tidings.observability.readiness import AWAY, OK
from tidings.storage.database import Database
from tidings.wire import core

# Seconds that the network has to respond; it gives its database 2 s.
TIMEOUT = 2.5
MEDIA = "media"
# Seconds that the network's response is cached, as is the database's. More frequent probes, or those of many Webapps,
# would exhaust the network's budget for unauthenticated clients.
CACHED_SECONDS = 1.0


class Databases:
    """Probes of both databases, on demand and at most once per second. A database counts as reachable only after a
    response.
    """

    def __init__(self, database: Database, network: NetworkApi, *, cached_seconds: float = CACHED_SECONDS) -> None:
        """Create the probes.

        cached_seconds: seconds that the network's response is cached
        """
        self._database = database
        self._network = network
        self._of_network = Probe(self._probe_network, cached_seconds, "probe the network")

    async def away(self) -> list[str]:
        """Return the parts that are unreachable or refuse writes: `core.DATABASE` for either database, and
        `core.NETWORK` if the network does not even report the state of its database.
        """
        alive, of_network = await asyncio.gather(self._database.is_alive(), self._of_network.result())
        found = {of_network} if alive else {of_network, core.DATABASE}
        return sorted(found - {""})

    async def _probe_network(self) -> str:
        """Return what the network reports as unreachable, empty for nothing. An unreachable network is reported by its
        link instead.
        """
        try:
            health = await self._network.health(seconds=TIMEOUT)
        except NetworkTimeout:
            return core.NETWORK
        except NetworkUnavailable:
            return ""
        return "" if health.get("database", "ok") == "ok" else core.DATABASE


class CoreappNeeds:
    """Dependencies that the process needs to be ready. A standby is ready too."""

    def __init__(self, databases: Databases, shards: OpenShards, media: StoreWatch) -> None:
        self._databases = databases
        self._shards = shards
        self._media = media

    async def check(self) -> Mapping[str, str]:
        """Return `OK` or `AWAY` for each dependency."""
        away = await self._databases.away()
        connected = all(shard.link.connected for shard in self._shards)
        return {
            core.DATABASE: AWAY if core.DATABASE in away else OK,
            core.NETWORK: OK if connected and core.NETWORK not in away else AWAY,
            MEDIA: self._media.state,
        }
