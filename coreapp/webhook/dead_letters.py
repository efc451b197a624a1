"""Callbacks that were given up or accepted and can be posted again."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.journal.change import Change
from coreapp.webhook.queue import CallbackQueue, at_limit
from tidings.aio.token_buckets import RateLimit
from tidings.storage import outages
from tidings.storage.business import callback_history, callback_replays, callbacks, shards
from tidings.storage.business.callback_history import EndedCallback
from tidings.storage.business.callbacks import Callback
from tidings.storage.database import Connection, pages
from tidings.wire import codes, core

log = logging.getLogger(__name__)

# One replay may overdraw the token bucket. The next one is refused until the bucket has recovered.
RATE = RateLimit(1.0 / core.REPLAYS_PER_SECOND, 1000.0)


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class DeadLetters:
    """Dead letters of one shard."""

    context: ShardContext
    queue: CallbackQueue
    # State of the token bucket of replays.
    _full_at: float = dataclasses.field(default=0.0, init=False)

    async def replay(self, seqs: Sequence[int], by: str, *, accepted: bool = True) -> int:
        """Return the named dead letters to the queue, or up to 1,000 of all if `seqs` is empty. Returns their number.

        Named callbacks that failed and wait for their next attempt become due now. Those that the webhook has accepted
        are posted again, as new callbacks with the same event ids. Raises `RequestRefused` while the queue is at its
        limit or too many were replayed, and `LeaseLost`.

        by: who requested it, stored with each
        accepted: also post those again that the webhook has accepted by now
        """
        wait = RATE.wait(self._full_at, self.context.clock.monotonic(), 0.0)
        if wait:
            details = f"{core.REPLAYS_PER_SECOND} callbacks are replayed per second: try again in {math.ceil(wait)} s"
            raise RequestRefused(codes.TOO_MANY_REQUESTS, details, retry_after=math.ceil(wait))
        seqs = tuple(dict.fromkeys(seqs))
        # Read first: callbacks that become due now may have ended a moment later.
        ended = await self._list_ended(seqs[:1000]) if seqs and accepted else ()
        due = self.queue.make_due(frozenset(seqs))
        self._consume(len(due))
        if due:
            await self._note([row.seq for row in due], by)
        if len(self.queue) >= self.context.settings.callback_queue_limit:
            raise at_limit()
        revived = await self.queue.add_revived(lambda: self._take(seqs, by))
        again = await self._repeat(ended, by)
        self._consume(revived + again)
        return len(due) + revived + again

    async def _list_ended(self, seqs: Sequence[int]) -> Sequence[int]:
        """Return those of the named callbacks that the history has."""
        ended = await self.context.database.query(
            lambda connection: callback_history.list_ended(connection, self.context.account, seqs)
        )
        return [seq for seq in seqs if seq in ended]

    async def _repeat(self, ended: Sequence[int], by: str) -> int:
        """Post ended callbacks again. Returns their number, without those that cannot be opened."""
        count = 0
        for some in pages(ended, callback_history.MAX_FOUND):
            count += await self._repeat_page(some, by)
        return count

    async def _repeat_page(self, seqs: Sequence[int], by: str) -> int:
        context, now = self.context, self.context.now()
        found = await context.database.query(
            lambda connection: callback_history.find_all(connection, context.account, seqs)
        )
        made: list[Callback] = []
        replays: list[callback_replays.Replay] = []
        for stored, texts in zip(found, context.bodies.open_all_ended(context.account, found), strict=True):
            if texts.body:
                entry = stored.entry
                made.append(self._renewed(entry, texts.body, now))
                replays.append(callback_replays.Replay(entry.seq, now, context.shard, by, entry.event or None))
        if made:
            await context.persist(lambda connection: callback_replays.add(connection, replays))
            await context.journal.write(Change(context.account, new_callbacks=made))
            log.info("callbacks.repeated", extra={"count": len(made), "by": by})
        return len(made)

    def _renewed(self, entry: EndedCallback, body: bytes, now: int) -> Callback:
        """Return a new callback with the contents and the event id of an ended one.

        now: Unix milliseconds
        """
        made = self.context.callback(
            entry.subject, entry.kind, body, recipient=entry.recipient, request_id=entry.request_id, at=now
        )
        made.event, made.volatile = entry.event_id, False
        return made

    def _consume(self, count: int) -> None:
        self._full_at = RATE.consume(self._full_at, self.context.clock.monotonic(), count)

    async def _note(self, seqs: Sequence[int], by: str) -> None:
        now = self.context.now()
        replays = [callback_replays.Replay(seq, now, self.context.shard, by) for seq in seqs]
        await self.context.persist(lambda connection: callback_replays.add(connection, replays))
        log.info("callbacks.hurried", extra={"count": len(seqs), "by": by})

    async def _take(self, seqs: Sequence[int], by: str) -> Sequence[Callback]:
        lease, now = self.context.lease, self.context.now()

        async def work(connection: Connection) -> Sequence[Callback]:
            await shards.fence(connection, lease)
            dead = await callbacks.take_dead(connection, lease.shard, now, seqs or None)
            replays = [callback_replays.Replay(row.seq, now, lease.shard, by) for row in dead]
            await callback_replays.add(connection, replays)
            return dead

        try:
            dead = await self.context.database.commit(work)
        except Exception as error:
            if outages.may_be_committed(error):
                # They may be pending on disk, and are not in memory.
                self.context.journal.fail(error)
            raise
        log.info("callbacks.replayed", extra={"count": len(dead), "by": by})
        return self.context.bodies.open(dead)
