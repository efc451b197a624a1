"""Checks of the Coreapps: every shard has an owner that sends heartbeats and is connected to the network."""

from __future__ import annotations

from collections.abc import Sequence

from cli import guard
from cli.coreapp_client import CoreappClient
from cli.counts import counted
from cli.doctor.findings import Finding, error, fine, warning
from tidings.storage.business import nodes, shards, webapp_unreached
from tidings.storage.business.nodes import CoreappNode
from tidings.storage.business.webapp_unreached import UnreachedReport
from tidings.storage.database import Database
from tidings.wire import core

_START = "start a Coreapp; a running one claims the shard within TIDINGS_LEASE_SECONDS"
_UNREACHED = (
    "look at the network between them and at TIDINGS_COREAPP_ADVERTISED_HOST and TIDINGS_COREAPP_ADDRESS of this"
    " Coreapp; its shards move after 5 s if no Webapp reaches it and another Coreapp is reached"
)
_ELSEWHERE = (
    "find out who registered it (`devices.registered` in the log of the network), name the number in"
    " TIDINGS_NETWORK_BUSINESS_NUMBERS, then restart the Coreapp: it takes the number back with the registration key"
)


class ShardOwnersCheck:
    """Check of the lease of each shard."""

    name = "shards"

    def __init__(self, database: Database, *, lease_seconds: float) -> None:
        self._database = database
        self._lease_seconds = lease_seconds

    async def run(self) -> Sequence[Finding]:
        async with self._database.reading() as connection:
            owners = await shards.list_owners(connection)
            ages = await shards.list_heartbeat_ages(connection)
        if not owners:
            return [error(self.name, "no Coreapp has ever run", _START)]
        found = []
        for owner in owners:
            age = ages.get(owner.shard, 0.0)
            shard = f"shard {owner.shard} (one of {len(owners)})" if len(owners) > 1 else "shard 0 (the only one)"
            if not owner.node:
                found.append(error(self.name, f"{shard} has no owner", _START))
            elif age > self._lease_seconds:
                text = f"{shard}: {owner.node} has sent no heartbeat for {age:,.0f} s"
                found.append(error(self.name, text, _START))
            else:
                text = f"{shard}: {owner.node} at {owner.address}, {age:.1f} s since its heartbeat"
                found.append(fine(self.name, text))
        return found


class ReachedCoreappsCheck:
    """Check for live Coreapps that Webapps report as unreachable."""

    name = "reach"

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self) -> Sequence[Finding]:
        async with self._database.reading() as connection:
            members = await nodes.list_members(connection)
            reports = await webapp_unreached.list_reports(connection)
        evaluated = (self._evaluate(member.node, reports) for member in members if member.is_live)
        found = [finding for finding in evaluated if finding is not None]
        return found or [fine(self.name, f"{counted(len(reports), 'Webapp reaches', 'Webapps reach')} every Coreapp")]

    def _evaluate(self, node: CoreappNode, reports: Sequence[UnreachedReport]) -> Finding | None:
        """Return the finding about one Coreapp; `None` when every Webapp reaches it."""
        reporting = [report for report in reports if node.address in report.unreached]
        if not reporting:
            return None
        since = ", ".join(f"{report.node} for {report.unreached[node.address]:,.0f} s" for report in reporting)
        if len(reporting) == len(reports):
            return error(self.name, f"no Webapp reaches {node.name} at {node.address}: {since}", _UNREACHED)
        count = f"{len(reporting)} of {len(reports)} Webapps {'does' if len(reporting) == 1 else 'do'}"
        return warning(self.name, f"{count} not reach {node.name} at {node.address}: {since}", _UNREACHED)


class CoreappLinksCheck:
    """Check of the link to each shard owner with this environment's link key, and of the owner's health."""

    name = "coreapps"

    def __init__(self, database: Database, links: CoreappClient) -> None:
        self._database = database
        self._links = links

    async def run(self) -> Sequence[Finding]:
        async with self._database.reading() as connection:
            addresses = dict.fromkeys(o.address for o in await shards.list_owners(connection) if o.address)
        if not addresses:
            return [error(self.name, "no Coreapp has an address", _START)]
        return [await self._call(address) for address in addresses]

    async def _call(self, address: str) -> Finding:
        try:
            answer = await self._links.call(address, lambda n: core.GetHealth(n))
        except guard.CommandFailure as failure:
            remedy = "check that it runs, that its port is reachable from here and that TIDINGS_LINK_KEY is the same"
            return error(self.name, str(failure), remedy)
        if not isinstance(answer, core.Health):
            return error(self.name, f"{address} answered {answer!r}", "run the same release everywhere")
        text = f"{answer.node or address} is {answer.gateway_status}"
        if answer.elsewhere:
            text = f"{answer.node or address}: the number is registered elsewhere, the network refuses its token"
            return error(self.name, text, _ELSEWHERE)
        if answer.gateway_status != "connected":
            return error(self.name, text, "check the network, the database and the log of this Coreapp")
        return fine(self.name, text)
