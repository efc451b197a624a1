"""Everything about media that the owner of a shard runs, wired together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coreapp.account.device import OwnDevice
from coreapp.garbage import DAY_MS
from coreapp.journal import Journal
from coreapp.media.collector import MediaCollector
from coreapp.media.downloads import Downloads
from coreapp.media.fetching import Fetcher
from coreapp.media.links import LinkedMedia
from coreapp.media.preparation import Preparation
from coreapp.media.preparation_queue import PreparationQueue
from coreapp.media.stored import StoredMedia
from coreapp.media.uploads import Uploader
from coreapp.sending.encryption import Encryption, Outlet
from coreapp.settings import Settings
from tidings.client.http import NetworkApi
from tidings.egress.guard import EgressGuard
from tidings.media.files import Files
from tidings.runtime.clock import Clock
from tidings.safekeeping import Safe
from tidings.storage.business.shards import Lease
from tidings.storage.database import Database


class ShardMedia:
    """lane: of messages with files; downloads: of files that recipients sent; preparation: for whoever encrypts a
    content by other ways than the lane; collector: of files that nobody uses; unused_collector: of those that nobody
    has used for longer, whatever the settings say."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        lease: Lease,
        device: OwnDevice,
        journal: Journal,
        encryption: Encryption,
        outlet: Outlet,
        guard: EgressGuard,
        network: NetworkApi,
        kinds: Callable[[], Sequence[str]],
        persist: Callable[[], bool],
        clock: Clock,
    ) -> None:
        """kinds(): of inbound media that are fetched by themselves; persist(): are callbacks kept on disk?"""
        account = device.number
        files = Files(settings.media_dir, reserve=settings.media_reserve)
        files.prepare()
        uploader = Uploader(network, device, at_once=settings.media_transfers)
        stored = StoredMedia(database, lease, device.sealer, files, uploader, clock, account=account)
        linked = LinkedMedia(
            database,
            Safe(settings.secrets.master_key),
            files,
            uploader,
            guard,
            clock,
            account=account,
            timeout=settings.media_link_timeout,
            remembered=settings.media_link_cache,
        )
        self.preparation = Preparation(stored, linked, clock)
        self.lane = PreparationQueue(self.preparation, encryption.enter_lane, outlet.fail, journal.fail)
        self.downloads = Downloads(
            database,
            journal,
            device.sealer,
            Fetcher(network, device, files, clock=clock),
            kinds,
            persist,
            clock,
            account=account,
            shard=lease.shard,
            at_once=settings.media_transfers,
        )
        self.collector = MediaCollector(database, lease, files, clock, account=account)
        self.unused_collector = MediaCollector(
            database, lease, files, clock, account=account, unused_ms=settings.media_days * DAY_MS
        )

    async def close(self) -> None:
        """Leave the messages that wait to the next owner; the downloads must have been stopped."""
        await self.lane.close()
        await self.preparation.close()
