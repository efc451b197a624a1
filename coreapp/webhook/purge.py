"""Deletion of callbacks by the operator."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Sequence, Set

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.journal.change import Change
from coreapp.webhook.queue import FROM_RECIPIENTS, CallbackQueue, QueuePurge
from tidings.storage.business import callback_purges, callbacks, queue_views
from tidings.storage.database import Connection

log = logging.getLogger(__name__)

PURGED = Counter("tidings_callbacks_purged_total", "Callbacks that the operator deleted before they were posted")


@dataclasses.dataclass(frozen=True, slots=True)
class PurgedCallbacks:
    """Result of a purge."""

    deleted: int  # callbacks deleted
    changed: int  # named callbacks that stay, because their status is no longer one of those to delete


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class CallbackPurge:
    """Deletes callbacks of one shard, dead letters and waiting ones, and records it in the audit."""

    context: ShardContext
    queue: CallbackQueue

    async def purge(self, seqs: Sequence[int], by: str, choice: str, statuses: Collection[str] = ()) -> PurgedCallbacks:
        """Delete the named callbacks whose status is in `statuses`; an empty `statuses` means any. Callbacks being
        posted stay.

        Raises `LeaseLost`. After a failure the shard must be reopened.

        by, choice: who purged and by which selection, for the audit
        """
        context = self.context
        changed: Set[int] = frozenset()
        deleted = 0

        async def choose() -> Collection[int]:
            nonlocal changed
            async with context.database.reading() as connection:
                found = await queue_views.read_statuses(connection, context.shard, seqs)
            changed = queue_views.changed_since(found, statuses)
            return [seq for seq in seqs if seq not in changed]

        async def work(connection: Connection) -> int:
            nonlocal deleted
            deleted = await self._delete(connection, by, choice, found) or deleted
            return deleted

        # This ensures that callbacks committed just now are in the queue.
        await context.journal.write(Change(context.account))
        async with self.queue.without(choose) as found:
            try:
                # A pending write of a failed attempt would restore the row of a deleted callback.
                await context.journal.write(Change(context.account))
                deleted = await context.persist(work)
            except BaseException as error:
                # They are no longer in memory, and may be on disk.
                context.journal.fail(error)
                raise
        PURGED.inc(deleted)
        log.warning("callbacks.purged", extra={"count": deleted, "by": by, "choice": choice})
        return PurgedCallbacks(deleted, len(changed))

    async def _delete(self, connection: Connection, by: str, choice: str, found: QueuePurge) -> int:
        shard, seqs = self.context.shard, sorted(found.chosen)
        waiting = await callbacks.list_waiting(connection, shard, seqs)
        stored = {seq: row for seq, row in waiting.items() if seq not in found.discarded}
        posted = {seq for seq, (subject, _) in stored.items() if subject in found.posted}
        deleted = await callbacks.purge(connection, shard, [seq for seq in seqs if seq not in posted])
        if not deleted and found.is_counted:
            # An earlier attempt has deleted them.
            return 0
        found.is_counted = True
        found.stored = len(stored) - len(posted)
        found.theirs = sum(kind in FROM_RECIPIENTS for seq, (_, kind) in stored.items() if seq not in posted)
        now = self.context.now()
        await callback_purges.add(connection, callback_purges.CallbackPurgeRow(now, shard, by, choice, deleted))
        return deleted
