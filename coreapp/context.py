"""State that all packages of one shard share for one term of its lease."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import TypeVar

from coreapp import partitions
from coreapp.account.own_device import OwnDevice
from coreapp.account.prekey_pool import PreKeyPool
from coreapp.callback_bodies import BodySealer
from coreapp.capacity import JobCount
from coreapp.config import Config
from coreapp.graph_api.number import NumberConnections
from coreapp.journal.journal import Journal
from coreapp.network_connection import NetworkConnection
from coreapp.quarantine import Quarantine
from coreapp.receipt_spacing import ReceiptSpacing
from coreapp.settings import Settings
from coreapp.used_keys import UsedKeys
from tidings.aio.clock import Clock
from tidings.aio.service import Wakeup
from tidings.aio.slots import Slots
from tidings.client.http import NetworkApi
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.egress.guard import EgressGuard
from tidings.egress.responses import ReadCpuLimit
from tidings.keys.media_links import MediaLinks
from tidings.objects.directory import DirectoryStore
from tidings.objects.store import FileStore
from tidings.storage import database_clock
from tidings.storage.business import shards
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.shards import Lease
from tidings.storage.database import Connection, Database, Subject

Value = TypeVar("Value")


class ShardWakeups:
    """Wake-up events by which one shard of this process notifies another: one per shard number, regardless of the
    owner; at most as many as there are shards.
    """

    def __init__(self) -> None:
        self._wakeups: dict[int, Wakeup] = {}

    def of(self, shard: int) -> Wakeup:
        """Return the wake-up that the owner of `shard` waits for."""
        return self._wakeups.setdefault(shard, Wakeup())

    def wake(self, shard: int) -> None:
        """Wake the owner of `shard` in this process. An owner in another process finds the row at its next poll."""
        self.of(shard).wake()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SharedLimits:
    """Limits shared by all shards of one process."""

    posts: Slots  # slots of posts to the webhook
    cloud_posts: Slots  # slots of posts to the callbacks of the Cloud API
    uploads: asyncio.Semaphore  # slots of file uploads to the network
    downloads: asyncio.Semaphore  # slots of file downloads
    wakeups: ShardWakeups  # wake-ups between the shards
    receipt_spacing: ReceiptSpacing  # seconds for which receipts are collected
    webhook_reads: ReadCpuLimit  # CPU limit on reading responses of webhook receivers
    media_reads: ReadCpuLimit  # CPU limit on reading responses of media hosts

    @classmethod
    def of(cls, settings: Settings) -> SharedLimits:
        """Create the limits of a process with these settings. The number of concurrent posts follows from the
        business's settings later.
        """
        transfers = settings.media_transfers
        return cls(
            posts=Slots(),
            cloud_posts=Slots(),
            uploads=asyncio.Semaphore(transfers),
            downloads=asyncio.Semaphore(transfers),
            wakeups=ShardWakeups(),
            receipt_spacing=ReceiptSpacing(),
            webhook_reads=ReadCpuLimit(),
            media_reads=ReadCpuLimit(),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShardStore:
    """Tables of one account, as the owner of a shard writes them."""

    database: Database
    lease: Lease
    clock: Clock
    account: str  # phone number of the business

    @property
    def shard(self) -> int:
        return self.lease.shard

    def now(self) -> int:
        """Return the current time in Unix milliseconds."""
        return self.clock.now_ms()

    async def time_of_expiry(self) -> int:
        """Return the time from which the age of expired rows counts, Unix milliseconds: the earlier one of this host
        and of the database. A host whose clock is ahead deletes nothing early.
        """
        return min(self.now(), await self.database.query(database_clock.read))

    async def persist(
        self,
        work: Callable[[Connection], Awaitable[Value]],
        *,
        retry_seconds: float = 60.0,
        about: Subject = "messages",
    ) -> Value:
        """Commit work under the lease, as `Database.persist` does. Raises `LeaseLost`."""
        return await self.database.persist(shards.fenced(self.lease, work), retry_seconds=retry_seconds, about=about)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShardContext(ShardStore):
    """Account, keys and settings of one shard, and its access to the database, the network and the outside."""

    settings: Settings  # settings of the process
    files: FileStore  # store of the files that messages name
    working: DirectoryStore  # local directory of files in transfer; the same store as `files` where that is a directory
    shared: SharedLimits
    config: Config  # settings that the business sets over the API
    device: OwnDevice  # the business's own number and keys
    prekeys: PreKeyPool  # private pre-keys of the number
    journal: Journal  # the shard's one writer
    bodies: BodySealer  # seals callback bodies
    safe: SecretSealer  # seals secret values among the business's settings
    quarantine: Quarantine  # items that ended a process or a shard
    used_keys: UsedKeys  # idempotency keys that this process knows to be used
    network_connection: NetworkConnection  # connection to the network for messages
    network: NetworkApi  # the network's HTTP API
    webhook_guard: EgressGuard
    media_guard: EgressGuard
    count: JobCount  # jobs in the queue
    media_links: MediaLinks  # makes the URLs of files in webhooks of the Cloud API
    upstream: NumberConnections | None = None  # connections to the real Cloud API; None if not used

    def callback(
        self,
        subject: str,
        kind: str,
        body: bytes,
        *,
        recipient: str = "",
        request_id: str = "",
        at: int | None = None,
        due_at: int = 0,
    ) -> Callback:
        """Return a callback, to be committed with the event it reports. The journal sets its `seq`.

        subject: message or event that it concerns, whose callbacks are posted in order
        recipient: recipient who caused it; callbacks are posted round robin over recipients; empty for none
        at: Unix milliseconds; None for now
        due_at: Unix milliseconds before which it is not posted, and from which its age counts; 0 for at once
        """
        if at is None:
            at = self.now()
        return Callback(
            0,
            self.lease.shard,
            self.account,
            subject,
            kind,
            body,
            max(at, due_at),
            due_at=due_at,
            request_id=request_id,
            recipient=recipient,
            volatile=not self.config.preferences().persist,
        )

    def owns(self, peer: str) -> bool:
        """Return whether this recipient belongs to the shard."""
        return partitions.shard_of(self.lease, peer) == self.lease.shard
