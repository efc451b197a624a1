"""What arrives from the servers: receipts, inbound messages, notices. On our disk first, then acknowledged.

Deliveries that come while one batch is being committed make up the next. A batch that takes long is committed in
parts, so that heartbeats and questions have their turns. A delivery that was handled before is recognised (receipts by
message and status, messages by id) and only acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from coreapp import statistics
from coreapp.account.device import OwnDevice
from coreapp.groups.arrivals import GroupEvents
from coreapp.journal import Journal
from coreapp.media.downloads import Downloads
from coreapp.peers.contact_cache import ContactCache
from coreapp.peers.identities import Identities
from coreapp.peers.service_window import ServiceWindow
from coreapp.peers.sessions import SessionStore
from coreapp.receiving import deliveries as told
from coreapp.receiving import inbound_messages
from coreapp.receiving.consequences import Consequences
from coreapp.receiving.decryption import Decryption
from coreapp.receiving.group_notices import GroupNotices
from coreapp.receiving.inbound_messages import InboundMessages
from coreapp.receiving.key_changes import KeyChanges
from coreapp.receiving.receipts import Receipts
from coreapp.recovery.wiring import ShardRepeating
from coreapp.statuses.reports import StatusReports
from coreapp.statuses.tracker import StatusTracker
from coreapp.upstream import Upstream
from coreapp.webhook.rows import CallbackRows
from tidings.runtime import crashpoints
from tidings.runtime.batcher import Batcher
from tidings.runtime.clock import Clock
from tidings.storage.business import messages
from tidings.storage.database import Database
from tidings.wire import device as frames
from tidings.wire.device import Deliver

log = logging.getLogger(__name__)

# A batch is committed as far as it has come once it has kept the event loop to itself for so long. What a hostile peer
# makes dearest, a message far ahead in its session, is some 0.1 s more.
TURN_SECONDS = 0.25
PAUSE_SECONDS = 0.02  # of others, between two such parts
_MESSAGES = (frames.PREKEY, frames.MESSAGE, frames.GROUP)

# What follows from one delivery. It goes into the consequences of the batch, and nothing waits.
Room = Callable[[Deliver, Consequences], None]


class Preferences(inbound_messages.Preferences, Protocol):
    """What the business wants to hear."""

    @property
    def security(self) -> bool:
        """Does a message say whose keys it came with?"""
        ...


class Events:
    """The inbound side of one shard."""

    def __init__(
        self,
        database: Database,
        journal: Journal,
        upstream: Upstream,
        device: OwnDevice,
        store: SessionStore,
        progress: StatusTracker,
        reports: StatusReports,
        threads: ServiceWindow,
        downloads: Downloads,
        groups: GroupEvents,
        identities: Identities,
        contacts: ContactCache,
        repeating: ShardRepeating,
        preferences: Callable[[], Preferences],
        clock: Clock,
        *,
        shard: int,
    ) -> None:
        self._database = database
        self._journal = journal
        self._upstream = upstream
        self._device = device
        self._store = store
        self._progress = progress
        self._reports = reports
        self._threads = threads
        self._downloads = downloads
        self._groups = groups
        self._identities = identities
        self._contacts = contacts
        self._repeating = repeating
        self._wishes = preferences
        self._shard = shard
        self._rows = CallbackRows(lambda: reports.persist, clock, account=device.number, shard=shard)
        key_changes = KeyChanges(store, identities)
        inbound = InboundMessages(
            progress,
            Decryption(device, store, key_changes),
            downloads,
            identities,
            repeating.mending,
            repeating.asked_again,
            preferences,
        )
        self._rooms: Mapping[str, Room] = {
            **dict.fromkeys(told.STATUSES, Receipts(progress).note),
            **dict.fromkeys(_MESSAGES, inbound.receive),
            frames.GROUP_CHANGED: GroupNotices(progress).note,
            frames.IDENTITY: key_changes.note,
            frames.RETRY: repeating.resending.answer,
        }
        # Bounded by the window that the network keeps for unacknowledged deliveries.
        self._batcher: Batcher[Deliver, None] = Batcher("events", self._flush, max_size=500, max_in_flight=1)
        # Of the batch that is being handled, what is not on disk yet.
        self._in_flight: Sequence[Deliver] = ()
        # Counted when somebody asks, not with each message.
        statistics.PENDING.set_function(self._count_pending)

    def _count_pending(self) -> int:
        """Messages of recipients that have arrived and are not on disk yet."""
        return sum(delivery.kind in _MESSAGES for delivery in (*self._in_flight, *self._batcher.waiting()))

    def delivered(self, delivery: Deliver) -> None:
        """Take one delivery; it is acknowledged once its consequences are on disk."""
        self._batcher.put(delivery).add_done_callback(self._handled)

    async def close(self) -> None:
        """Finish what has arrived."""
        await self._batcher.close()
        statistics.PENDING.set_function(lambda: 0)

    def _handled(self, done: asyncio.Future[None]) -> None:
        """After a failure sessions in memory may be ahead of the disk: the shard has to be opened anew."""
        if not done.cancelled() and (error := done.exception()) is not None:
            self._journal.fail(error)

    async def _flush(self, deliveries: Sequence[Deliver]) -> Sequence[None]:
        self._in_flight = deliveries
        try:
            while self._in_flight:
                self._in_flight = self._in_flight[await self._take(self._in_flight) :]
                if self._in_flight:
                    await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._in_flight = ()
        return [None] * len(deliveries)

    async def _take(self, deliveries: Sequence[Deliver]) -> int:
        """Handle, commit and acknowledge as many as there is time for, in order and at least one; how many it were."""
        about = list({message_id for delivery in deliveries for message_id in told.subjects(delivery)})
        senders = told.by_session(deliveries)
        self._progress.hold(about)
        self._store.pin(senders)
        try:
            await self._load_progress(about)
            await self._store.load(senders)
            await self._repeating.resending.load(deliveries)
            arrivals = await self._groups.open(deliveries)
            with self._identities.pinned(senders):
                security = self._wishes().security
                await self._identities.load(senders if security else told.with_keys(deliveries))
                consequences = Consequences(
                    arrivals,
                    self._progress,
                    self._rows,
                    account=self._device.number,
                    shard=self._shard,
                    security=security,
                )
                handled = await self._handle(deliveries, consequences)
        finally:
            self._store.unpin(senders)
            self._progress.release(about)
        crashpoints.reach(crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK)
        self._upstream.acknowledge(deliveries[:handled])
        return handled

    async def _load_progress(self, ids: Sequence[str]) -> None:
        """Know of every message that these deliveries are about, inbound ones included."""
        missing = [message_id for message_id in ids if message_id not in self._progress]
        if missing:
            self._progress.load(
                await self._database.query(
                    lambda connection: messages.list_progress(connection, self._device.number, missing)
                )
            )

    async def _handle(self, deliveries: Sequence[Deliver], consequences: Consequences) -> int:
        """How many there was time for; all that follows from them is on disk. Nothing else runs before the journal has
        it."""
        handled, until = 0, time.perf_counter() + TURN_SECONDS
        for delivery in deliveries:
            room = self._rooms.get(delivery.kind)
            if room is None:
                log.warning("event.unknown", extra={"kind": delivery.kind, "from": delivery.sender})
            else:
                room(delivery, consequences)
            handled += 1
            if time.perf_counter() >= until:
                break
        letters = [*consequences.letters, *self._repeating.mending.letters(consequences.lost)]
        jobs = self._repeating.posting.jobs(letters)
        change = consequences.change(self._reports, self._store, self._contacts, jobs)
        if change is None:
            consequences.arrivals.committed()
            return handled
        committed = self._journal.put(change)
        self._repeating.posting.post(letters, jobs)
        self._identities.announce(consequences.learnt, committed)
        await committed
        consequences.arrivals.committed()
        self._threads.heard(consequences.heard)
        self._downloads.offer(consequences.downloads)
        self._downloads.ended(consequences.ended_downloads)
        for key_id in consequences.used_prekeys:
            self._device.prekeys.pop(key_id, None)
        return handled
