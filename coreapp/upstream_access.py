"""Upstream of a number in the real Cloud API with its credentials, as the Coreapp follows it."""

from __future__ import annotations

import dataclasses

from tidings.e2ee.installation_secrets import SecretSealer
from tidings.keys import upstream_credentials
from tidings.keys.upstream_credentials import UpstreamCredentials
from tidings.storage.business import upstreams
from tidings.storage.business.upstreams import Upstream
from tidings.storage.database import Connection


@dataclasses.dataclass(frozen=True, slots=True)
class UpstreamAccess:
    """Upstream of a number with its credentials, as the Coreapp follows them."""

    upstream: Upstream
    credentials: UpstreamCredentials | None  # None if they cannot be opened

    @property
    def token(self) -> str:
        return self.credentials.token if self.credentials is not None else ""

    def is_same_as(self, other: UpstreamAccess | None) -> bool:
        """Return whether the operator has changed nothing. The fault, which the row has too, does not count."""
        if other is None:
            return False
        return (self.upstream.changed_at, self.credentials) == (other.upstream.changed_at, other.credentials)

    def url(self, path: str) -> str:
        """Return the URL of a path below the base URL."""
        return f"{self.upstream.base_url}/{path}"

    @property
    def messages_url(self) -> str:
        return self.url(f"{self.upstream.phone_number_id}/messages")


async def find_access(connection: Connection, safe: SecretSealer, account: str) -> UpstreamAccess | None:
    """Return the upstream of a number; None for one that uses the network."""
    found = await upstreams.find(connection, account)
    return UpstreamAccess(found, await upstream_credentials.find(connection, safe, account)) if found else None
