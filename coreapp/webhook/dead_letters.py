"""Callbacks that were given up and can be replayed."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.webhook.queue import CallbackQueue
from tidings.storage.business import callback_replays, callbacks, shards
from tidings.storage.business.callbacks import Callback
from tidings.storage.database import Connection
from tidings.wire import codes

log = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class DeadLetters:
    """Dead letters of one shard."""

    context: ShardContext
    queue: CallbackQueue

    async def replay(self, seqs: Sequence[int], by: str) -> int:
        """Return the named dead letters to the queue, or up to 1,000 of all if `seqs` is empty. Returns their number.

        Named callbacks that failed and wait for their next attempt become due now. Raises `RequestRefused` while the
        queue is at its limit, and `LeaseLost`.

        by: who requested it, stored with each
        """
        hurried = self.queue.hurry(frozenset(seqs))
        if hurried:
            await self._note([row.seq for row in hurried], by)
        if len(self.queue) >= self.context.settings.callback_queue_limit:
            raise RequestRefused(codes.OVERLOADED, "the callback queue is at its limit", retry_after=5)
        return len(hurried) + await self.queue.bring_back(lambda: self._take(seqs, by))

    async def _note(self, seqs: Sequence[int], by: str) -> None:
        now = self.context.now()
        hurried = [callback_replays.Replay(seq, now, self.context.shard, by) for seq in seqs]
        await self.context.persist(lambda connection: callback_replays.add(connection, hurried))
        log.info("callbacks.hurried", extra={"count": len(seqs), "by": by})

    async def _take(self, seqs: Sequence[int], by: str) -> Sequence[Callback]:
        lease, now = self.context.lease, self.context.now()

        async def work(connection: Connection) -> Sequence[Callback]:
            await shards.fence(connection, lease)
            dead = await callbacks.take_dead(connection, lease.shard, now, seqs or None)
            replays = [callback_replays.Replay(row.seq, now, lease.shard, by) for row in dead]
            await callback_replays.add(connection, replays)
            return dead

        dead = await self.context.database.commit(work)
        log.info("callbacks.replayed", extra={"count": len(dead), "by": by})
        return self.context.bodies.open(dead)
