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

    def __init__(self, clock: Clock, tracker: StatusTracker) -> None:
        self._clock = clock
        self._tracker = tracker
        self._places: Sequence[WaitingQueue] = ()
        self._transmitter: Transmitter | None = None
        # Expiry by job id, Unix milliseconds. Entries of sent jobs are removed at a pass, and when `_limit` is reached.
        self._watched: dict[str, int] = {}
        self._limit = SPARE  # entries of `_watched`
        # Earliest expiry in `_watched`, Unix milliseconds.
        self._earliest: float = math.inf

    def set_queues(self, places: Sequence[WaitingQueue], transmitter: Transmitter) -> None:
        """Set all queues in which jobs wait. The transmitter's queue is added to `places`."""
        self._places = (*places, transmitter)
        self._transmitter = transmitter

    def watch(self, job: Job) -> None:
        """Record the expiry of a job that enters the queue."""
        if job.expires_at is not None:
            if len(self._watched) >= self._limit:
                self._forget_sent()
            self._watched[job.id] = job.expires_at
            self._earliest = min(self._earliest, job.expires_at)

    def _forget_sent(self) -> None:
        self._watched = {id_: at for id_, at in self._watched.items() if self._tracker.is_unsent(id_)}
        self._limit = 2 * len(self._watched) + SPARE

    async def run(self, stop: asyncio.Event) -> None:
        while not await service.wait_for(stop, INTERVAL):
            self.run_once()

    def run_once(self) -> int:
        """End the expired jobs. Returns the number of messages."""
        now = self._clock.now() * 1000
        if now < self._earliest or self._transmitter is None:
            return 0

        def is_expired(job: Job) -> bool:
            return job.expires_at is not None and job.expires_at <= now and self._tracker.is_unsent(job.id)

        taken = [job for place in self._places for job in place.remove(is_expired)]
        self._transmitter.fail(taken, *WHY)
        self._forget_sent()
        self._earliest = min(self._watched.values(), default=math.inf)
        EXPIRED.inc(len(taken))
        if taken:
            log.info("jobs.expired", extra={"count": len(taken)})
        return len(taken)
