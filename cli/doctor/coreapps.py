"""Checks of the Coreapps: every shard has an owner that sends heartbeats and is connected to the network."""

from __future__ import annotations

from collections.abc import Sequence

from cli import guard
from cli.doctor.findings import Finding, error, fine
from cli.links import Links
from tidings.storage.business import shards
from tidings.storage.database import Database
from tidings.wire import core

_START = "start a Coreapp; one that runs takes the shard within TIDINGS_LEASE_SECONDS"
_ELSEWHERE = (
    "find out who registered it (`devices.registered` in the log of the network), name the number in"
    " TIDINGS_NETWORK_BUSINESS_NUMBERS, then restart the Coreapp: it takes the number back with the registration key"
)


class ShardOwners:
    """Check of the lease of each shard."""

    name = "shards"

    def __init__(self, database: Database, *, lease_seconds: float) -> None:
        self._database = database
        self._lease_seconds = lease_seconds

    async def run(self) -> Sequence[Finding]:
        async with self._database.reading() as connection:
            owners = await shards.list_owners(connection)
            silences = await shards.list_silences(connection)
        if not owners:
            return [error(self.name, "no Coreapp was ever here", _START)]
        found = []
        for owner in owners:
            silence = silences.get(owner.shard, 0.0)
            if not owner.node:
                found.append(error(self.name, f"shard {owner.shard} has no owner", _START))
            elif silence > self._lease_seconds:
                text = f"shard {owner.shard}: {owner.node} has said nothing for {silence:,.0f} s"
                found.append(error(self.name, text, _START))
            else:
                text = f"shard {owner.shard}: {owner.node} at {owner.address}, {silence:.1f} s since its heartbeat"
                found.append(fine(self.name, text))
        return found


class CoreappLinks:
    """Check of the link to each shard owner with this environment's link key, and of the owner's health."""

    name = "coreapps"

    def __init__(self, database: Database, links: Links) -> None:
        self._database = database
        self._links = links

    async def run(self) -> Sequence[Finding]:
        async with self._database.reading() as connection:
            addresses = dict.fromkeys(o.address for o in await shards.list_owners(connection) if o.address)
        if not addresses:
            return [error(self.name, "no Coreapp has an address", _START)]
        return [await self._ask(address) for address in addresses]

    async def _ask(self, address: str) -> Finding:
        try:
            answer = await self._links.ask(address, lambda n: core.GetHealth(n))
        except guard.Failure as failure:
            remedy = "look whether it runs and its port is open from here, and whether TIDINGS_LINK_KEY is the same"
            return error(self.name, str(failure), remedy)
        if not isinstance(answer, core.Health):
            return error(self.name, f"{address} answered {answer!r}", "run the same release everywhere")
        text = f"{answer.node or address} is {answer.gateway_status}"
        if answer.elsewhere:
            text = f"{answer.node or address}: the number is registered elsewhere, the network refuses its token"
            return error(self.name, text, _ELSEWHERE)
        if answer.gateway_status != "connected":
            return error(self.name, text, "look at the network, the database, and the log of this Coreapp")
        return fine(self.name, text)
