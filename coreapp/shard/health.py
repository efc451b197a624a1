"""How this process is: the databases that messages go through, the business's and the network's, which it tells of; and
whether its shards are at work."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from coreapp.shard.open_shards import OpenShards
from tidings.client.errors import NetworkAway, NetworkSilent
from tidings.client.http import NetworkApi
from tidings.runtime.probe import Probe
from tidings.runtime.readiness import AWAY, OK
from tidings.storage.database import Database
from tidings.wire import core

# Seconds that the network has to answer; it gives its database two.
TIMEOUT = 2.5
MEDIA = "media"
# Seconds that its answer stands: as that of the database. Whoever looks more often than that, or from many Webapps,
# would use up what the network does for those who have not logged in.
STANDS = 1.0


class Databases:
    """Asked when somebody wants to know, once a second at most; never believed to be connected without an answer."""

    def __init__(self, database: Database, network: NetworkApi, *, stands: float = STANDS) -> None:
        """stands: seconds for which what the network says is believed."""
        self._database = database
        self._network = network
        self._of_network = Probe(self._ask_network, stands, "probe the network")

    async def away(self) -> list[str]:
        """What does not answer, or take what is written: `core.DATABASE` for either of them, and `core.NETWORK` when
        it does not even say how its own is."""
        alive, of_network = await asyncio.gather(self._database.is_alive(), self._of_network.answer())
        found = {of_network} if alive else {of_network, core.DATABASE}
        return sorted(found - {""})

    async def _ask_network(self) -> str:
        """What is away there, empty for nothing. That it cannot be reached is for its link to tell."""
        try:
            health = await self._network.health(seconds=TIMEOUT)
        except NetworkSilent:
            return core.NETWORK
        except NetworkAway:
            return ""
        return "" if health.get("database", "ok") == "ok" else core.DATABASE


class Store(Protocol):
    """The files that messages name. state: `OK` or `AWAY`."""

    @property
    def state(self) -> str: ...


class Needs:
    """What the process needs. Who stands by is ready to."""

    def __init__(self, databases: Databases, shards: OpenShards, media: Store) -> None:
        self._databases = databases
        self._shards = shards
        self._media = media

    async def look(self) -> Mapping[str, str]:
        """`OK` or `AWAY` for each."""
        away = await self._databases.away()
        connected = all(shard.link.connected for shard in self._shards)
        return {
            core.DATABASE: AWAY if core.DATABASE in away else OK,
            core.NETWORK: OK if connected and core.NETWORK not in away else AWAY,
            MEDIA: self._media.state,
        }
