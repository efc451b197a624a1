"""Messages that the operator has deleted from the job queue: they are never sent, and fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.journal import Change
from coreapp.sending.transmission import Transmitter
from coreapp.statuses.tracker import StatusTracker
from tidings.storage.business import callback_purges, queue_views, shards
from tidings.storage.business.callback_purges import Purge
from tidings.storage.business.jobs import Job
from tidings.wire import codes

log = logging.getLogger(__name__)

PURGED = Counter("tidings_jobs_purged_total", "Messages that were deleted from the job queue by the operator, unsent")

WHY = (codes.MESSAGE_FAILED, "the operator has deleted this message from the queue, unsent")


class Place(Protocol):
    """Where jobs wait that nobody has sent yet."""

    def take_out(self, chosen: Callable[[Job], bool]) -> Sequence[Job]:
        """Take those that are chosen out of the queue, to be ended by the caller."""
        ...


class Purged(NamedTuple):
    """deleted: messages; stay: those named that may have been sent, are gone, or have another status than asked for."""

    deleted: int
    stay: int


class JobPurge:
    """Deletes messages of one shard that were accepted and never sent. Their business hears that they have failed."""

    def __init__(
        self, context: ShardContext, tracker: StatusTracker, *, places: Sequence[Place], transmitter: Transmitter
    ) -> None:
        """places: all in which jobs wait, besides the transmitter's."""
        self._context = context
        self._tracker = tracker
        self._places = (*places, transmitter)
        self._transmitter = transmitter

    async def purge(self, ids: Collection[str], by: str, choice: str, statuses: Collection[str] = ()) -> Purged:
        """Delete those named that have one of these statuses, of whichever without any; done when it is on disk.

        What was sent stays, whether the network has it or not: nobody could say that it failed. So does what is no
        message, but serves others: keys of groups, receipts. by, choice: for the audit. Raises `LeaseLost`.
        """
        named = set(ids)

        def is_chosen(job: Job) -> bool:
            # What is sent again, and what is no message at all, has another status or none.
            return (
                job.id in named
                and self._tracker.is_unsent(job.id)
                and (not statuses or queue_views.job_status(job.state) in statuses)
            )

        # Nothing else runs from the first look to the journal.
        taken = [job for place in self._places for job in place.take_out(is_chosen)]
        self._transmitter.fail(taken, *WHY)
        await self._context.journal.write(Change(self._context.account))
        PURGED.inc(len(taken))
        log.warning("jobs.purged", extra={"count": len(taken), "by": by, "choice": choice})
        if taken:
            await self._note(len(taken), by, choice)
        return Purged(len(taken), len(named) - len(taken))

    async def _note(self, count: int, by: str, choice: str) -> None:
        lease, now = self._context.lease, int(self._context.clock.now() * 1000)
        purge = Purge(now, lease.shard, by, choice, count, callback_purges.JOBS)
        await self._context.database.persist(
            shards.fenced(lease, lambda connection: callback_purges.add(connection, purge))
        )
