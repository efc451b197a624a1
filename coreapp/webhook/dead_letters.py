"""Callbacks that were given up, and can be brought back."""

from __future__ import annotations

from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.errors import Refused
from coreapp.webhook.queue import CallbackQueue
from tidings.storage.business import callbacks, shards
from tidings.storage.business.callbacks import Callback
from tidings.wire import codes


class DeadLetters:
    """The dead letters of one shard."""

    def __init__(self, context: ShardContext, queue: CallbackQueue) -> None:
        self._context = context
        self._queue = queue

    async def replay(self, seqs: Sequence[int]) -> int:
        """Bring those named back into the queue, or up to 1,000 of all; returns how many.

        Raises `Refused` while the queue is at its limit, and `LeaseLost`.
        """
        if len(self._queue) >= self._context.settings.callback_queue_limit:
            raise Refused(codes.OVERLOADED, "the callback queue is at its limit", retry_after=5)
        return await self._queue.bring_back(lambda: self._take(seqs))

    async def _take(self, seqs: Sequence[int]) -> Sequence[Callback]:
        lease, now = self._context.lease, int(self._context.clock.now() * 1000)
        async with self._context.database.transaction() as connection:
            await shards.fence(connection, lease)
            dead = await callbacks.take_dead(connection, lease.shard, now, seqs or None)
        return self._context.bodies.open(dead)
