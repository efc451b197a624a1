"""What all rooms of one shard share, for one term of its lease."""

from __future__ import annotations

import dataclasses

from coreapp.account.own_device import OwnDevice
from coreapp.callback_bodies import BodySealer
from coreapp.capacity import JobCount
from coreapp.config import Config
from coreapp.journal import Journal
from coreapp.settings import Settings
from coreapp.upstream import Upstream
from tidings.client.http import NetworkApi
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.egress.guard import EgressGuard
from tidings.runtime.clock import Clock
from tidings.storage.business.shards import Lease
from tidings.storage.database import Database


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShardContext:
    """The account, its keys and settings, and what reads, writes and reaches the outside for it.

    settings: of the process; config: what the business sets over the API; safe: seals what of it is secret; bodies:
    seals those of callbacks; count: the jobs in the queue.
    """

    settings: Settings
    config: Config
    database: Database
    lease: Lease
    device: OwnDevice
    journal: Journal
    bodies: BodySealer
    safe: SecretSealer
    upstream: Upstream
    network: NetworkApi
    webhook_guard: EgressGuard
    media_guard: EgressGuard
    clock: Clock
    count: JobCount

    @property
    def account(self) -> str:
        """The business's number."""
        return self.device.number

    @property
    def shard(self) -> int:
        return self.lease.shard
