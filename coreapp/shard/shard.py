"""All services of the owner of one shard, wired for one term of its lease and discarded after it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import Gauge

from coreapp.accepting.wiring import Accepting, wire_accepting
from coreapp.account.own_device import OwnDevice
from coreapp.account.prekey_maintenance import PreKeyMaintenance
from coreapp.account.prekey_pool import PreKeyPool
from coreapp.callback_bodies import BodySealer
from coreapp.capacity import JobCount
from coreapp.config import ConfigSource
from coreapp.context import ShardContext, SharedLimits
from coreapp.graph_api.number import NumberConnections
from coreapp.groups.cross_shard import CrossShardReader
from coreapp.groups.wiring import ShardGroups, wire_groups
from coreapp.journal.change import Change
from coreapp.journal.commits import Committer
from coreapp.journal.journal import Journal
from coreapp.media.wiring import ShardMedia
from coreapp.peers.wiring import ShardPeers, wire_peers
from coreapp.quarantine import Quarantine
from coreapp.receiving.inbox import Inbox
from coreapp.recovery.wiring import Recovery, wire_recovery
from coreapp.retention import RetentionService, wire_retention
from coreapp.sending.encryption import Encryption
from coreapp.sending.network_link import NetworkLink
from coreapp.sending.shared_connection import NetworkConnections
from coreapp.sending.wiring import Sending, wire_sending
from coreapp.settings import Settings
from coreapp.statuses.wiring import Statuses, wire_statuses
from coreapp.upstream.inbox import UpstreamInbox
from coreapp.upstream.link import UpstreamLink
from coreapp.upstream.wiring import (
    make_checks,
    make_inbox,
    make_media,
    make_sender,
    without_kept_contents,
)
from coreapp.used_keys import UsedKeys
from coreapp.webhook.queue import FROM_RECIPIENTS
from coreapp.webhook.wiring import Webhook, wire_webhook
from coreapp.work_in_progress import WorkInProgress
from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.client.http import NetworkApi
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.egress.guard import EgressGuard
from tidings.keys.media_links import MediaLinks
from tidings.objects.directory import DirectoryStore
from tidings.objects.store import FileStore
from tidings.storage.business import callback_history, callbacks, jobs
from tidings.storage.business.shards import Lease
from tidings.storage.database import Database

log = logging.getLogger(__name__)

EPOCH = Gauge("tidings_shard_epoch", "Epoch under which this process owns the shard; 0 when it does not", ["shard"])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One term of ownership: from the claim of the lease until it is lost or given up."""

    context: ShardContext
    link: NetworkLink | UpstreamLink
    webhook: Webhook
    peers: ShardPeers
    sending: Sending
    media: ShardMedia
    groups: ShardGroups
    recovery: Recovery
    accepting: Accepting
    receiving: Inbox
    prekey_maintenance: PreKeyMaintenance
    retention: RetentionService
    cross_shard_reader: CrossShardReader
    upstream: UpstreamInbox | None  # inbound side of a number that sends through the Cloud API; None for other numbers

    @property
    def is_stopped(self) -> bool:
        """Return whether the number sends through the Cloud API, which accepts nothing because of a fault."""
        return self.context.upstream is not None and bool(self.context.upstream.pace.fault)

    async def run(self, stop: asyncio.Event, stopping: Callable[[], None]) -> None:
        """Serve until `stop` is set. Raises `LeaseLost`, or another error that broke the journal; nothing is written
        after that.

        stopping: called at the end, before work in flight is waited for, which takes long without a database
        """
        services: Sequence[service.Service] = (
            _JournalWatch(self.context.journal),
            self.webhook.deliveries,
            self.webhook.cloud_deliveries,
            self.retention,
            *(self._of_number() if self.context.lease.is_first else ()),
            # Started for a single shard too: other shards of an earlier layout may have left messages.
            self.cross_shard_reader,
            self.media.downloads,
            self.accepting.jobs.expiry,
            self.recovery.recovering,
            self.link,
        )
        try:
            await service.run_services(services, stop, stopping=stopping)
        except service.ServiceFailed as failure:
            if failure.cause is not None:
                raise failure.cause from None
            raise
        finally:
            EPOCH.labels(self.context.shard).set(0)
            self.webhook.direct.close()
            await self.peers.contacts.close()
            await self.accepting.requests.close()
            await self.accepting.checks.close()
            await self.accepting.idempotency_keys.close()
            await self.media.close()
            await self.groups.close()
            await self.sending.encryption.close()
            self.sending.failures.close()
            await self.receiving.close()
            await self.webhook.queue.close()
            await self.context.journal.close()
            self.context.config.close()

    def _of_number(self) -> Sequence[service.Service]:
        """Return the services of the first shard: the number has one pool of pre-keys, list of templates and set of
        limits."""
        return (
            self.webhook.template_events,
            self.webhook.limit_events,
            self.accepting.tier_rises,
            *(self.upstream.mirrors if self.upstream else (self.prekey_maintenance,)),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProcessParts:
    """Objects that all shards of a process share."""

    settings: Settings
    database: Database
    network: NetworkApi
    clock: Clock
    safe: SecretSealer
    config: ConfigSource
    shared: SharedLimits
    used_keys: UsedKeys
    files: FileStore
    working: DirectoryStore
    work: WorkInProgress
    upstream: NumberConnections
    committer: Committer[Journal, Change]  # commits the changes of all shards
    connections: NetworkConnections  # connections to the network for messages


async def open_shard(process: ProcessParts, lease: Lease, device: OwnDevice) -> Shard:
    """Read the state that the previous owner left, and return a shard ready to handle requests. Raises `LeaseLost`."""
    settings, database, network = process.settings, process.database, process.network
    bodies = BodySealer(device.sealer)
    await bodies.seal_old(database, lease)
    left, waiting, last_seq = await _read_queues(database, lease, device.number)
    config = await process.config.open()
    try:
        # The settings were read under this lease. A later switch between network and Cloud API ends the lease.
        is_upstream = config.upstream is not None
        link = (
            UpstreamLink(config, database, process.upstream, standin_prefix=str(settings.cloud_standin))
            if is_upstream
            else NetworkLink(process.connections, device, lease)
        )
        context = ShardContext(
            settings=settings,
            files=process.files,
            working=process.working,
            shared=process.shared,
            config=config,
            database=database,
            lease=lease,
            account=device.number,
            device=device,
            prekeys=PreKeyPool(database, device, lease),
            journal=Journal(
                database,
                lease,
                last_seq=last_seq,
                seal=bodies.seal,
                history=bodies if settings.keeps_history else None,
                committer=process.committer,
            ),
            bodies=bodies,
            safe=process.safe,
            quarantine=await Quarantine.read(database, process.work, lease, device.number),
            used_keys=process.used_keys,
            network_connection=link,
            network=network,
            webhook_guard=EgressGuard(settings.outgoing_webhooks),
            media_guard=EgressGuard(settings.outgoing_media),
            clock=process.clock,
            count=JobCount(),
            media_links=MediaLinks(settings.secrets.link_key, process.clock),
            upstream=process.upstream if is_upstream else None,
        )
        shard = await _wire(context, link, left, waiting)
    except BaseException:
        config.close()
        raise
    _opened(lease, len(left), waiting[0])
    return shard


async def _wire(
    context: ShardContext, link: NetworkLink | UpstreamLink, left: Sequence[jobs.Job], waiting: tuple[int, int]
) -> Shard:
    """Wire the packages of a shard, each from the previous ones.

    left: jobs of the previous owner
    waiting: callbacks in the database, and those of them that are `FROM_RECIPIENTS`
    """
    webhook = wire_webhook(context)
    statuses = await wire_statuses(context, webhook, left)
    peers = await wire_peers(context, webhook)
    make_encryption = make_sender(context) or Encryption
    sending = await wire_sending(context, webhook, statuses, peers=peers, make_encryption=make_encryption)
    try:
        return await _wire_rest(
            context, link, left, waiting, webhook=webhook, statuses=statuses, peers=peers, sending=sending
        )
    except BaseException:
        # It may have begun to send.
        await sending.encryption.close()
        await context.journal.close()
        raise


async def _wire_rest(
    context: ShardContext,
    link: NetworkLink | UpstreamLink,
    left: Sequence[jobs.Job],
    waiting: tuple[int, int],
    *,
    webhook: Webhook,
    statuses: Statuses,
    peers: ShardPeers,
    sending: Sending,
) -> Shard:
    """Wire the packages that need the sending side, and resume the jobs."""
    media = make_media(context, sending)
    groups = await wire_groups(context, statuses, sending, left)
    recovery = await wire_recovery(context, statuses, peers=peers, sending=sending, media=media)
    recovery = without_kept_contents(context, recovery, peers)
    accepting = wire_accepting(
        context,
        webhook,
        statuses,
        peers=peers,
        sending=sending,
        media=media,
        groups=groups,
        recovery=recovery,
        checks=make_checks(context, peers, groups),
    )
    receiving = Inbox(context, statuses, peers=peers, media=media, groups=groups, recovery=recovery)
    maintenance = PreKeyMaintenance(
        context.database, context.lease, context.device, network=context.network, clock=context.clock
    )
    link.listen(sends=sending.transmitter, deliveries=receiving, prekeys_low=maintenance.low)
    if context.lease.is_first:
        link.on_connect(groups.replicas.sync_soon)
    await webhook.queue.start(*waiting)
    await accepting.jobs.resume(left)
    receiving.handle_released()
    return Shard(
        context=context,
        link=link,
        webhook=webhook,
        peers=peers,
        sending=sending,
        media=media,
        groups=groups,
        recovery=recovery,
        accepting=accepting,
        receiving=receiving,
        prekey_maintenance=maintenance,
        retention=wire_retention(context, media.collector, media.unused_collector),
        cross_shard_reader=CrossShardReader(
            context,
            groups.notes,
            sending.encryption,
            tracker=statuses.tracker,
            handle=receiving.handle_cross_shard_message,
        ),
        upstream=make_inbox(context, statuses, peers=peers, media=media, sending=sending),
    )


def _opened(lease: Lease, jobs: int, callbacks: int) -> None:
    EPOCH.labels(lease.shard).set(lease.epoch)
    fields = {"shard": lease.shard, "epoch": lease.epoch, "jobs": jobs, "callbacks": callbacks}
    log.info("shard.opened", extra=fields)


async def _read_queues(
    database: Database, lease: Lease, account: str
) -> tuple[Sequence[jobs.Job], tuple[int, int], int]:
    """Return the jobs of the previous owner, the numbers of waiting callbacks and of those `FROM_RECIPIENTS`, and the
    highest callback `seq`.

    account: phone number of the business
    """
    async with database.reading() as connection:
        return (
            await jobs.list_jobs(connection, lease.shard),
            (
                await callbacks.count_pending(connection, lease.shard),
                await callbacks.count_pending(connection, lease.shard, FROM_RECIPIENTS),
            ),
            max(await callbacks.highest_seq(connection), await callback_history.highest_seq(connection, account)),
        )


class _JournalWatch:
    """Service that ends the shard when its journal breaks."""

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
