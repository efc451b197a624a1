"""Everything about callbacks that the owner of a shard runs, wired for one term."""

from __future__ import annotations

from collections.abc import Sequence

from coreapp.config import Config
from coreapp.errors import Refused
from coreapp.journal import Journal
from coreapp.settings import Settings
from coreapp.statuses.rows import StatusRows
from coreapp.statuses.tracker import StatusTracker
from coreapp.webhook.audience import Audience
from coreapp.webhook.delivery import Deliveries
from coreapp.webhook.queue import CallbackQueue
from coreapp.webhook.rows import CallbackRows
from coreapp.webhook.status_delay import StatusDelay
from tidings.egress.guard import EgressGuard
from tidings.runtime.clock import Clock
from tidings.storage.business import callbacks, shards
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.shards import Lease
from tidings.storage.database import Database
from tidings.wire import codes


class ShardCallbacks:
    """queue: of what the webhook has still to be told; audience: its other end; delay: of statuses.

    Make it by `read`, and `start` it once everything is there that may post.
    """

    @classmethod
    async def read(
        cls, settings: Settings, database: Database, lease: Lease, config: Config, clock: Clock, *, account: str
    ) -> ShardCallbacks:
        """With what the last owner left on disk."""
        async with database.reading() as connection:
            pending = await callbacks.count_pending(connection, lease.shard)
            last_seq = await callbacks.highest_seq(connection)
        return cls(settings, database, lease, config, clock, account=account, pending=pending, last_seq=last_seq)

    def __init__(
        self,
        settings: Settings,
        database: Database,
        lease: Lease,
        config: Config,
        clock: Clock,
        *,
        account: str,
        pending: int,
        last_seq: int,
    ) -> None:
        """pending: callbacks on disk; last_seq: the highest in use."""
        self.pending = pending
        self.last_seq = last_seq
        self._settings = settings
        self._database = database
        self._lease = lease
        self._config = config
        self._clock = clock
        self._account = account
        self.queue = CallbackQueue(settings.callback_queue_limit, clock, self._load)
        self.audience = Audience(
            lambda: bool(config.target().url),
            lambda: len(self.queue),
            settings.callback_queue_limit,
            refuses=settings.refuses_unheard,
        )
        config.on_change(self.audience.settings_changed)
        self.delay = StatusDelay(settings.status_delay, clock)

    def status_rows(self, progress: StatusTracker) -> StatusRows:
        """What makes callbacks of statuses."""
        rows = CallbackRows(
            lambda: self._config.preferences().persist, self._clock, account=self._account, shard=self._lease.shard
        )
        return StatusRows(rows, progress, self.delay, self.audience)

    def deliveries(self, journal: Journal, guard: EgressGuard) -> Deliveries:
        """The service that empties the queue."""
        settings = self._settings
        deliveries = Deliveries(
            self.queue,
            journal,
            self._config.target,
            settings.webhook_key,
            guard,
            self._clock,
            timeout=settings.webhook_timeout,
        )
        self._config.on_change(deliveries.kick)
        return deliveries

    async def start(self) -> None:
        """Take up what was pending."""
        await self.queue.start(self.pending)

    def committed(self, new: Sequence[Callback]) -> None:
        """These are on disk, or volatile."""
        self.delay.committed(new)
        self.queue.offer(new)

    async def replay(self, seqs: Sequence[int]) -> int:
        """Bring dead letters back into the queue, those named or up to 1,000 of all; returns how many.

        Raises `Refused` while the queue is at its limit, and `LeaseLost`.
        """
        if len(self.queue) >= self._settings.callback_queue_limit:
            raise Refused(codes.OVERLOADED, "the callback queue is at its limit", retry_after=5)
        return await self.queue.bring_back(lambda: self._revive(seqs))

    async def _revive(self, seqs: Sequence[int]) -> Sequence[Callback]:
        async with self._database.transaction() as connection:
            await shards.fence(connection, self._lease)
            now = int(self._clock.now() * 1000)
            return await callbacks.take_dead(connection, self._lease.shard, now, seqs or None)

    async def _load(self, after: int, limit: int) -> Sequence[Callback]:
        return await self._database.query(
            lambda connection: callbacks.list_pending(connection, self._lease.shard, after=after, limit=limit)
        )
