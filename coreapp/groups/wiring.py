"""Everything about groups that the owner of a shard runs, wired for one term."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from coreapp.account.device import OwnDevice
from coreapp.groups.arrivals import GroupEvents
from coreapp.groups.key_requests import KeyRequests
from coreapp.groups.own_keys import OwnKeys
from coreapp.groups.pairwise import Count, Pairwise
from coreapp.groups.peer_keys import PeerKeys
from coreapp.groups.read_marks import GroupReadMarks
from coreapp.groups.receipts import GroupReceipts
from coreapp.groups.replica import GroupReplicas
from coreapp.groups.requests import GroupRequests
from coreapp.groups.sender import GroupSender
from coreapp.journal import Change, Journal
from coreapp.sending.encryption import Encryption, Outlet
from coreapp.sending.read_receipts import ReadReceipts
from coreapp.statuses.reports import Preferences
from coreapp.statuses.rows import StatusRows
from coreapp.statuses.tracker import StatusTracker
from tidings.client.groups import GroupApi
from tidings.client.http import NetworkApi
from tidings.runtime.clock import Clock
from tidings.storage.business import groups, sender_keys
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.groups import Group
from tidings.storage.business.jobs import Job
from tidings.storage.business.sender_keys import Holder
from tidings.storage.business.shards import Lease
from tidings.storage.database import Database

ANSWER_SECONDS = 10.0  # that the network has for a call: a Webapp waits for it


class ShardGroups:
    """The parts. Make it by `read`."""

    @classmethod
    async def read(
        cls,
        database: Database,
        device: OwnDevice,
        network: NetworkApi,
        encryption: Encryption,
        journal: Journal,
        outlet: Outlet,
        count: Count,
        read_receipts: ReadReceipts,
        progress: StatusTracker,
        preferences: Callable[[], Preferences],
        status_rows: StatusRows,
        clock: Clock,
        *,
        lease: Lease,
        left: Sequence[Job],
        invite_url: str,
    ) -> ShardGroups:
        """With what the last owner left on disk, its jobs among it."""
        account, shard = device.number, lease.shard
        async with database.reading() as connection:
            known = await groups.list_groups(connection, account)
            under_way = await sender_keys.list_under_way(connection, account)
        own = OwnKeys(database, device, [job.id for job in left])
        await own.load([holder.group_id for holder in under_way])
        pairwise = Pairwise(encryption, journal, progress, count, outlet, clock, account=account, shard=shard)
        receipts = GroupReceipts(database, progress, preferences, status_rows, clock)
        reading = GroupReadMarks(database, read_receipts, account=account)
        api = GroupApi(network, device, seconds=ANSWER_SECONDS)
        return cls(
            database, device, api, own, encryption, journal, outlet, pairwise, receipts, reading, clock,
            known=known, left=left, under_way=under_way, invite_url=invite_url,
        )  # fmt: skip

    def __init__(
        self,
        database: Database,
        device: OwnDevice,
        api: GroupApi,
        own: OwnKeys,
        encryption: Encryption,
        journal: Journal,
        outlet: Outlet,
        pairwise: Pairwise,
        receipts: GroupReceipts,
        reading: GroupReadMarks,
        clock: Clock,
        *,
        known: Sequence[Group],
        left: Sequence[Job],
        under_way: Sequence[Holder],
        invite_url: str,
    ) -> None:
        account = device.number
        self._account = account
        self._background: set[asyncio.Task[None]] = set()
        self._own = own
        self._journal = journal
        self.read_marks = reading
        self.book = GroupReplicas(api, journal, known, account=account)
        self.lane = GroupSender(account, encryption, self.book, own, pairwise, journal, outlet)
        self.lane.resume(left, under_way)
        encryption.serve_groups(self.lane)
        self.desk = GroupRequests(api, self.book, account=account, invite_url=invite_url)
        requests = KeyRequests(pairwise, clock)
        peers = PeerKeys(database, device)
        self.events = GroupEvents(
            self.book, own, peers, self.lane, requests, receipts, self._give_again_soon, account=account
        )

    def connected(self) -> None:
        """Logged in: compare what we know with what the network knows."""
        self.book.sync_soon()

    async def give_again(self, member: str) -> None:
        """A participant whose identity was not acknowledged was refused our keys; from now on they are given them."""
        shared = list(self.book.groups_of(member))
        await self._own.load(shared)
        holders = [holder for group_id in shared for holder in self._own.at_hand(group_id).lost_by(member)]
        if holders:
            await self._journal.write(Change(self._account, groups=GroupChanges(self._account, holders=holders)))

    def _give_again_soon(self, member: str) -> None:
        task = asyncio.create_task(self.give_again(member), name=f"keys of {member}")
        self._background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The database is away for long, or the shard is lost: it has to be opened anew either way.
            self._journal.fail(error)

    async def close(self) -> None:
        """Leave what is under way to the next owner."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.lane.close()
        await self.book.close()
