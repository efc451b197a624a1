"""Deletion of unsent messages from the job queue by the operator. Deleted messages fail."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.journal.change import Change
from coreapp.sending.transmission import Transmitter
from coreapp.statuses.tracker import StatusTracker
from tidings.storage.business import callback_purges, queue_views
from tidings.storage.business.callback_purges import CallbackPurgeRow
from tidings.storage.business.jobs import Job
from tidings.wire import codes

log = logging.getLogger(__name__)

PURGED = Counter("tidings_jobs_purged_total", "Unsent messages that the operator deleted from the job queue")

WHY = (codes.MESSAGE_FAILED, "the operator deleted this unsent message from the queue")


class WaitingQueue(Protocol):
    """Queue in which unsent jobs wait."""

    def remove(self, chosen: Callable[[Job], bool]) -> Sequence[Job]:
        """Remove the chosen jobs from the queue and return them; the caller ends them."""
        ...


class PurgedJobs(NamedTuple):
    """Result of a purge."""

    deleted: int  # messages deleted
    stay: int  # named messages that stay: possibly sent, gone, or with another status than requested


@dataclasses.dataclass(eq=False, repr=False, slots=True, kw_only=True)
class JobPurge:
    """Deletes messages of one shard that were accepted and never sent. The business gets a failed status for each."""

    context: ShardContext
    tracker: StatusTracker
    places: Sequence[WaitingQueue]  # all queues in which jobs wait, except the transmitter's
    transmitter: Transmitter
    # Time of the last purge in the audit, Unix milliseconds. No two have the same, so that each is noted once.
    _noted_at: int = dataclasses.field(default=0, init=False)

    async def purge(self, ids: Collection[str], by: str, choice: str, statuses: Collection[str] = ()) -> PurgedJobs:
        """Delete the named messages whose status is in `statuses`; an empty `statuses` means any. Returns when it is on
        disk.

        A message that was sent stays, whether the network has it or not, since its failure cannot be known. Jobs that
        are not messages stay as well (keys of groups, receipts). Raises `LeaseLost`.

        by, choice: who purged and by which selection, for the audit
        """
        named = set(ids)

        def is_chosen(job: Job) -> bool:
            # Messages being resent, and jobs that are not messages, have another status or none.
            return (
                job.id in named
                and self.tracker.is_unsent(job.id)
                and (not statuses or queue_views.job_status(job.state) in statuses)
            )

        # Taking the jobs out and queueing the change happen in one event-loop iteration.
        taken = [job for place in (*self.places, self.transmitter) for job in place.remove(is_chosen)]
        self.transmitter.fail(taken, *WHY)
        await self.context.journal.write(Change(self.context.account))
        PURGED.inc(len(taken))
        log.warning("jobs.purged", extra={"count": len(taken), "by": by, "choice": choice})
        if taken:
            await self._note(len(taken), by, choice)
        return PurgedJobs(len(taken), len(named) - len(taken))

    async def _note(self, count: int, by: str, choice: str) -> None:
        self._noted_at = at = max(self.context.now(), self._noted_at + 1)
        purge = CallbackPurgeRow(at, self.context.shard, by, choice, count, callback_purges.JOBS)
        await self.context.persist(lambda connection: callback_purges.put(connection, purge))
