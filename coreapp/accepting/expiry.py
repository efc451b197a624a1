"""Expiry of messages whose time to live ended before they were sent: they get the status failed with code 410.

The network does the same with envelopes that it has accepted; each envelope carries its remaining seconds.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence

from prometheus_client import Counter

from coreapp.accepting.purge import WaitingQueue
from coreapp.sending.transmission import Transmitter
from coreapp.statuses.tracker import StatusTracker
from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.storage.business.jobs import Job
from tidings.wire import codes

log = logging.getLogger(__name__)

EXPIRED = Counter("tidings_jobs_expired_total", "Messages that expired before they were sent")

WHY = (codes.EXPIRED, "the message was not sent within its time to live")
INTERVAL = 1.0  # seconds between two passes
SPARE = 1000  # watched jobs beyond twice the unsent ones, after which the sent ones are removed


class JobExpiry:
    """Service that ends the expired jobs of one shard.

    Jobs that may have been sent are left to the network, since their failure cannot be known here. The service stores
    no jobs; a pass scans the queue only when a job may have expired. A job that is between two queues during a pass,
    because its commit is in flight, is found by the next pass.
    """

    name = "job-expiry"

    def __init__(self, clock: Clock, tracker: StatusTracker, transmitter: Transmitter) -> None:
        self._clock = clock
        self._tracker = tracker
        self._transmitter = transmitter
        self._places: Sequence[WaitingQueue] = ()
        # Entries of sent jobs are removed at a pass, and when `_limit` is reached.
        self._deadlines = transmitter.deadlines
        self._limit = SPARE  # entries of `_deadlines`
        # Earliest of them, monotonic time in seconds.
        self._earliest = math.inf

    def set_queues(self, places: Sequence[WaitingQueue]) -> None:
        """Set all queues in which jobs wait, except the transmitter's."""
        self._places = (*places, self._transmitter)

    def watch(self, job: Job, now: int | None = None) -> None:
        """Record the expiry of a job that enters the queue.

        now: present time, Unix milliseconds; None for that of the clock
        """
        if job.expires_at is not None:
            if len(self._deadlines) >= self._limit:
                self._drop_sent()
            self._earliest = min(self._earliest, self._deadlines.note(job, now))

    def _drop_sent(self) -> None:
        self._deadlines.keep(self._tracker.is_unsent)
        self._limit = 2 * len(self._deadlines) + SPARE

    async def run(self, stop: asyncio.Event) -> None:
        while not await service.wait_for(stop, INTERVAL):
            self.run_once()

    def run_once(self) -> int:
        """End the expired jobs. Returns the number of messages."""
        if self._clock.monotonic() < self._earliest:
            return 0

        def is_expired(job: Job) -> bool:
            return self._deadlines.has_passed(job) and self._tracker.is_unsent(job.id)

        taken = [job for place in self._places for job in place.remove(is_expired)]
        self._transmitter.fail(taken, *WHY)
        self._drop_sent()
        self._earliest = self._deadlines.earliest
        EXPIRED.inc(len(taken))
        if taken:
            log.info("jobs.expired", extra={"count": len(taken)})
        return len(taken)
