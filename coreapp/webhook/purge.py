"""Callbacks that the operator has deleted without a post."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Sequence, Set

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.journal import Change
from coreapp.webhook.queue import FROM_RECIPIENTS, CallbackQueue, Purge
from tidings.storage.business import callback_purges, callbacks, queue_views, shards
from tidings.storage.database import Connection

log = logging.getLogger(__name__)

PURGED = Counter("tidings_callbacks_purged_total", "Callbacks that were deleted by the operator and never posted")


@dataclasses.dataclass(frozen=True, slots=True)
class Purged:
    """deleted: callbacks; changed: those that stay, because they have another status than those to be deleted."""

    deleted: int
    changed: int


class CallbackPurge:
    """Deletes callbacks of one shard, dead letters and those that wait alike, with a line of audit."""

    def __init__(self, context: ShardContext, queue: CallbackQueue) -> None:
        self._context = context
        self._queue = queue

    async def purge(self, seqs: Sequence[int], by: str, choice: str, statuses: Collection[str] = ()) -> Purged:
        """Delete those named, but for what is being posted at this moment, and what has none of these statuses (any
        more); without statuses, whatever they have.

        by, choice: kept in the audit. Raises `LeaseLost`; after a failure the shard has to be opened again.
        """
        context = self._context
        changed: Set[int] = frozenset()

        async def choose() -> Collection[int]:
            nonlocal changed
            async with context.database.reading() as connection:
                found = await queue_views.read_statuses(connection, context.lease.shard, seqs)
            changed = queue_views.changed_since(found, statuses)
            return [seq for seq in seqs if seq not in changed]

        # What was committed just now is in the queue after this.
        await context.journal.write(Change(context.account))
        async with self._queue.without(choose) as found:
            try:
                # A failed attempt at one of them that is not written yet would put its row back.
                await context.journal.write(Change(context.account))
                deleted = await context.database.persist(
                    shards.fenced(context.lease, lambda connection: self._delete(connection, by, choice, found))
                )
            except BaseException as error:
                # They are in memory no more, and may be on disk.
                context.journal.fail(error)
                raise
        PURGED.inc(deleted)
        log.warning("callbacks.purged", extra={"count": deleted, "by": by, "choice": choice})
        return Purged(deleted, len(changed))

    async def _delete(self, connection: Connection, by: str, choice: str, found: Purge) -> int:
        shard, seqs = self._context.lease.shard, sorted(found.chosen)
        waiting = await callbacks.list_waiting(connection, shard, seqs)
        stored = {seq: row for seq, row in waiting.items() if seq not in found.discarded}
        posted = {seq for seq, (subject, _) in stored.items() if subject in found.posted}
        found.stored = len(stored) - len(posted)
        found.theirs = sum(kind in FROM_RECIPIENTS for seq, (_, kind) in stored.items() if seq not in posted)
        deleted = await callbacks.purge(connection, shard, [seq for seq in seqs if seq not in posted])
        now = int(self._context.clock.now() * 1000)
        await callback_purges.add(connection, callback_purges.Purge(now, shard, by, choice, deleted))
        return deleted
