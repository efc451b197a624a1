"""Check of the numbers that send through the real Cloud API."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from cli.doctor.findings import Finding, error, fine, warning
from coreapp.graph_api.client import GraphClient
from coreapp.upstream import account_check
from coreapp.upstream_access import UpstreamAccess, find_access
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.egress.guard import EgressGuard
from tidings.egress.settings import OutgoingSettings
from tidings.secrets.process_secrets import SecretKeys
from tidings.storage.business import upstreams
from tidings.storage.database import Database


@dataclasses.dataclass(eq=False, repr=False)
class UpstreamCheck:
    """Asks the Cloud API about token, permissions, ids, state, webhooks and clock of each such number."""

    name = "cloud api"

    database: Database
    outgoing: OutgoingSettings
    settings_key: SecretKeys

    async def run(self) -> Sequence[Finding]:
        safe = SecretSealer(*self.settings_key.keys, read=self.settings_key.read)
        async with self.database.reading() as connection:
            found = [await find_access(connection, safe, row.account) for row in await upstreams.list_all(connection)]
        client = GraphClient(EgressGuard(self.outgoing))
        try:
            return [finding for access in found if access is not None for finding in await self._check(client, access)]
        finally:
            client.close()

    async def _check(self, client: GraphClient, access: UpstreamAccess) -> Sequence[Finding]:
        number = access.upstream.account
        problems = await account_check.run(client, access, time.time())
        findings = [
            (error if problem.is_error else warning)(self.name, f"{number}: {problem.text}", problem.remedy)
            for problem in problems
        ]
        if access.upstream.fault:
            text = f"{number} is stopped: {access.upstream.fault}"
            remedy = "repair it; the Coreapp tries again every 60 s, and at once when the credentials are replaced"
            findings.append(error(self.name, text, remedy))
        return findings or [fine(self.name, f"{number}: {access.upstream.base_url} accepts token and ids")]
