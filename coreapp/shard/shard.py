"""Everything that the owner of one shard runs, wired for one term of its lease and thrown away after it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from prometheus_client import Gauge

from coreapp import ids
from coreapp.accepting.idempotency import IdempotencyKeys
from coreapp.accepting.job_queue import JobCount, JobQueue
from coreapp.account.device import OwnDevice
from coreapp.account.prekey_upkeep import PreKeyUpkeep
from coreapp.capacity import Admission, CapacityGate
from coreapp.config import Config
from coreapp.garbage import MEDIA, MESSAGE, UNUSED_MEDIA, GarbageCollector, MessageCollector, old_rows
from coreapp.groups.wiring import ShardGroups
from coreapp.journal import Journal
from coreapp.media.wiring import ShardMedia
from coreapp.peers.contact_cache import ContactCache
from coreapp.peers.identities import Identities
from coreapp.peers.identity_requests import IdentityRequests
from coreapp.peers.service_window import ServiceWindow
from coreapp.peers.sessions import SessionStore
from coreapp.receiving.events import Events
from coreapp.recovery.collector import KEPT, KeptCollector
from coreapp.recovery.wiring import ShardRepeating
from coreapp.sending.encryption import Encryption
from coreapp.sending.network_link import NetworkLink
from coreapp.sending.read_marks import ReadMarks
from coreapp.sending.read_receipts import ReadReceipts
from coreapp.sending.transmission import Transmitter
from coreapp.settings import Settings
from coreapp.statuses.reports import StatusReports
from coreapp.statuses.tracker import StatusTracker
from coreapp.webhook.wiring import ShardCallbacks
from tidings.client.http import NetworkApi
from tidings.egress.guard import EgressGuard
from tidings.runtime import service
from tidings.runtime.clock import Clock
from tidings.storage.business import jobs, messages
from tidings.storage.business.shards import Lease
from tidings.storage.database import Database
from tidings.wire.device import Deliver

log = logging.getLogger(__name__)


EPOCH = Gauge("tidings_shard_epoch", "Epoch under which this process owns the shard; 0 when it does not", ["shard"])


class Shard:
    """One term of ownership: from the claim of the lease until it is lost or given up."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        lease: Lease,
        device: OwnDevice,
        clock: Clock,
        network: NetworkApi,
    ) -> None:
        self.lease = lease
        self._network = network
        self._settings = settings
        self._database = database
        self._device = device
        self._clock = clock
        self.config = Config(database, device.number, any_2xx=settings.accept_any_2xx)

    async def open(self) -> None:
        """Read what the last owner left, and be ready to answer."""
        settings, database, device, clock = self._settings, self._database, self._device, self._clock
        account, number = device.number, self.lease.shard
        await self.config.load()
        async with database.reading() as connection:
            left = await jobs.list_jobs(connection, number)
            under_way = [ids.message_of(job.id) for job in left]
            progress_rows = await messages.list_progress(connection, account, list(dict.fromkeys(under_way)))

        self.guard = EgressGuard(settings.outgoing)
        self.link = NetworkLink(*settings.network_tcp, device.number, device.token, epoch=self.lease.epoch)
        self.callbacks = await ShardCallbacks.read(settings, database, self.lease, self.config, clock, account=account)
        self.queue, delay = self.callbacks.queue, self.callbacks.delay
        self.journal = Journal(
            database, self.lease, last_seq=self.callbacks.last_seq, committed=self.callbacks.committed
        )
        progress = StatusTracker()
        progress.hold(under_way)
        progress.load(progress_rows)
        status_rows = self.callbacks.status_rows(progress)
        reports = StatusReports(
            progress, self.config.preferences, status_rows, clock, account=account, names=settings.conversations
        )
        count = JobCount()
        window = ServiceWindow(database, clock, account=account, enforced=settings.reengagement_window)
        self._keys = IdempotencyKeys(database, clock, account=account)
        store = SessionStore(database, device)
        self.transmitter = Transmitter(
            self.link,
            self.journal,
            reports,
            account=account,
            later=asyncio.get_running_loop().call_later,
            finished=self._finished,
            returned=lambda job: self.groups.lane.returned(job),
            blocked_is_sent=settings.blocked_is_sent,
        )
        self.identities = Identities(
            database,
            self.lease,
            self.journal,
            self.config.preferences,
            clock,
            account=account,
            shard=number,
            allow_pq_downgrade=settings.allow_pq_downgrade,
        )
        await self.identities.open()
        self.encryption = Encryption(
            device,
            store,
            self.link,
            self.journal,
            self.transmitter,
            self.identities,
            require_pq=settings.require_pq,
        )
        self.identities.on_change(self.transmitter.withdraw)
        self.identities.on_change(self.encryption.turn_away)
        self.config.on_change(self.identities.settings_changed)
        self.media = ShardMedia(
            settings,
            database,
            self.lease,
            device,
            self.journal,
            self.encryption,
            self.transmitter,
            self.guard,
            self._network,
            lambda: self.config.settings.media.auto_download,
            lambda: reports.persist,
            clock,
        )
        self.contacts = ContactCache(
            database,
            self.journal,
            self.link,
            clock,
            account=account,
            shard=number,
            check_unknown=settings.check_unknown,
            unregistered_seconds=settings.unregistered_seconds,
        )
        self.identity_desk = IdentityRequests(
            self.identities, self.contacts, store, self.link, self.journal, account=account
        )
        admission = Admission(
            CapacityGate("job", settings.job_queue_limit),
            count,
            CapacityGate("callback", settings.callback_queue_limit),
            self.callbacks.audience.pressing,
        )
        read_receipts = ReadReceipts(
            admission, count, self.journal, progress, self.transmitter, clock, account=account, shard=number
        )
        self.groups = await ShardGroups.read(
            database,
            device,
            self._network,
            self.encryption,
            self.journal,
            self.transmitter,
            count,
            read_receipts,
            progress,
            self.config.preferences,
            status_rows,
            clock,
            lease=self.lease,
            left=left,
            invite_url=settings.invite_url,
        )
        self.repeating = await ShardRepeating.read(
            database,
            device,
            store,
            self.encryption,
            self.media.lane,
            self.journal,
            progress,
            count,
            lambda: reports.persist,
            clock,
            shard=number,
        )
        self.jobs = JobQueue(
            admission,
            count,
            self.contacts,
            self.encryption,
            self.journal,
            progress,
            self.transmitter,
            reports,
            delay,
            window,
            self._keys,
            self.media.lane,
            self.identities,
            self.groups.desk,
            self.repeating.keeping,
            self.repeating.posting,
            clock,
            account=account,
            shard=number,
        )
        self.read_marks = ReadMarks(database, read_receipts, self.groups.read_marks, account=account)
        self.events = Events(
            database,
            self.journal,
            self.link,
            device,
            store,
            progress,
            reports,
            window,
            self.media.downloads,
            self.groups.events,
            self.identities,
            self.contacts,
            self.repeating,
            self.config.preferences,
            clock,
            shard=number,
        )
        self.deliveries = self.callbacks.deliveries(self.journal, self.guard)
        self.garbage = GarbageCollector(
            {
                MESSAGE: MessageCollector(database, self.lease, clock),
                MEDIA: self.media.collector,
                UNUSED_MEDIA: self.media.unused_collector,
                **old_rows(
                    database,
                    self.lease,
                    clock,
                    account=account,
                    unread_days=settings.unread_days,
                    dead_callback_days=settings.dead_callback_days,
                ),
                KEPT: KeptCollector(database, self.lease, clock),
            },
            lambda: self.config.settings,
            self.journal,
            clock,
            account=account,
            shard=number,
            node=settings.node,
        )
        self.prekey_upkeep = PreKeyUpkeep(database, self.lease, device, network=self._network, clock=clock)
        self.link.listen(self)
        await self.callbacks.start()
        self.jobs.resume(left)
        EPOCH.labels(number).set(self.lease.epoch)
        log.info(
            "shard.opened",
            extra={"shard": number, "epoch": self.lease.epoch, "jobs": len(left), "callbacks": self.callbacks.pending},
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`. Raises `LeaseLost`, or what else broke the journal; nothing is written after that."""
        watcher = _JournalWatch(self.journal)
        services: Sequence[service.Service] = (
            watcher,
            self.config,
            self.deliveries,
            self.garbage,
            self.prekey_upkeep,
            self.media.downloads,
            self.repeating.asked_again,
            self.link,
        )
        try:
            await service.run_services(services, stop)
        except service.ServiceFailed as failure:
            if failure.cause is not None:
                raise failure.cause from None
            raise
        finally:
            EPOCH.labels(self.lease.shard).set(0)
            await self.contacts.close()
            await self._keys.close()
            await self.media.close()
            await self.groups.close()
            await self.encryption.close()
            await self.events.close()
            await self.queue.close()
            await self.journal.close()

    # What the servers tell us, handed to whom it concerns.

    def connected(self) -> None:
        self.transmitter.connected()
        self.groups.connected()

    def accepted(self, ids: Sequence[str]) -> None:
        self.transmitter.accepted(ids)

    def refused(self, envelope_id: str, reason: str, detail: str) -> None:
        self.transmitter.refused(envelope_id, reason, detail)

    def delivered(self, delivery: Deliver) -> None:
        self.events.delivered(delivery)

    def prekeys_low(self, remaining: int) -> None:
        self.prekey_upkeep.low()

    def _finished(self, ids: Sequence[str], committed: asyncio.Future[None]) -> None:
        self.jobs.finished(ids, committed)
        self.groups.lane.finished(ids)


class _JournalWatch:
    """Ends the shard when its journal breaks."""

    name = "journal"

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def run(self, stop: asyncio.Event) -> None:
        stopping = asyncio.create_task(stop.wait())
        either: list[asyncio.Future[Any]] = [stopping, self._journal.broken]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._journal.broken.done():
            self._journal.broken.result()
