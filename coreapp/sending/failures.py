"""Failed attempts at jobs and their reasons, kept for views of the queue.

Nothing is written for jobs that succeed at once, and at most one row every few seconds for a failing job.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence

from coreapp.context import ShardContext
from coreapp.journal.change import Change
from tidings.client.errors import NetworkTimeout, NetworkUnavailable, NetworkUnreached
from tidings.storage.business import job_errors
from tidings.storage.business.job_errors import JobError

# Seconds from a failure until it is written. Further failures of the job in this time cost nothing.
WRITE_SECONDS = 5.0
# Rows per write; further ones wait for the next.
MAX_ROWS = 500

# Stored reasons. They contain no text from others, which may contain numbers.
OVERLOADED = "the network is overloaded"
HELD_BACK = "the network accepts nothing more for this recipient now: the mailbox is full, or too much arrives at once"
STALE_GROUP = "the group has changed: the message is encrypted again"
LOGGED_OUT = "the network does not know this login"
FILE_UNREADABLE = "its file cannot be read at present"
DISK_AWAY = "the disk has no room for its file, or cannot be used at present"
UNACKNOWLEDGED = "the connection to the network was lost before a response: the message is sent again"


def no_response(error: NetworkUnavailable) -> str:
    """Return the reason why the network did not respond."""
    if isinstance(error, NetworkUnreached):
        return "the network cannot be reached, or this shard is not logged in to it"
    if isinstance(error, NetworkTimeout):
        return "the network does not respond in time"
    return "the network cannot respond at present"


@dataclasses.dataclass(eq=False, repr=False)
class JobFailures:
    """Failures of one shard's jobs by job id; at most one per job.

    A crash loses only failures that were not written yet; the jobs themselves are resumed.
    """

    context: ShardContext
    left: dataclasses.InitVar[Iterable[JobError]]  # failures of queued jobs that the previous owner wrote

    def __post_init__(self, left: Iterable[JobError]) -> None:
        self._known = {error.id: error for error in left}
        # Known failures that differ from their row on disk.
        self._changed: dict[str, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._written: asyncio.Future[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._known)

    def note(self, job_ids: Iterable[str], error: str) -> None:
        """Record one more failed attempt at each of these queued jobs, which will be tried again."""
        if self._closed:
            return
        now = self.context.now()
        for job_id in job_ids:
            known = self._known.get(job_id)
            if known is None:
                self._known[job_id] = JobError(job_id, 1, error, now)
            else:
                known.attempts, known.last_error, known.tried_at = known.attempts + 1, error, now
            self._changed[job_id] = None
        self._write_later()

    def ended(self, job_ids: Sequence[str]) -> job_errors.JobErrorChanges | None:
        """Drop the failures of ended jobs. Returns the changes to commit with their end; None if there are none."""
        if not self._known:
            return None
        gone = [job_id for job_id in job_ids if self._known.pop(job_id, None) is not None]
        for job_id in gone:
            self._changed.pop(job_id, None)
        return job_errors.JobErrorChanges(deleted=gone) if gone else None

    def close(self) -> None:
        """Stop writing."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _write_later(self) -> None:
        if self._timer is None and self._changed and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._write)

    def _write(self) -> None:
        self._timer = None
        # While the database is unreachable, there is only one pending write.
        if (self._written is None or self._written.done()) and not self.context.journal.broken.done():
            chosen = [job_id for job_id, _ in zip(self._changed, range(MAX_ROWS), strict=False)]
            for job_id in chosen:
                del self._changed[job_id]
            # Copies, because a job may fail again before they are committed.
            rows = [dataclasses.replace(self._known[job_id]) for job_id in chosen]
            if rows:
                self._written = self.context.journal.put(
                    Change(self.context.account, failures=job_errors.JobErrorChanges(saved=rows))
                )
        self._write_later()
