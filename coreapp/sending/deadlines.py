"""Ends of the times to live of jobs, on the monotonic clock: a wall clock that is set ahead ends none of them early."""

from __future__ import annotations

import math
from collections.abc import Callable

from tidings.aio.clock import Clock
from tidings.storage.business.jobs import Job


class JobDeadlines:
    """Deadlines of the unsent jobs of one shard."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Monotonic time in seconds, by job id.
        self._ends: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def earliest(self) -> float:
        """Monotonic time of the first deadline, infinite for none."""
        return min(self._ends.values(), default=math.inf)

    def note(self, job: Job, now: int | None = None) -> float:
        """Record the deadline of a job that has one. Returns it.

        now: present time, Unix milliseconds; None for that of the clock
        """
        left = (job.expires_at or 0) - (self._clock.now_ms() if now is None else now)
        end = self._ends[job.id] = self._clock.monotonic() + max(0, left) / 1000
        return end

    def keep(self, is_wanted: Callable[[str], bool]) -> None:
        """Drop the deadlines of all jobs but those whose ids are wanted."""
        self._ends = {job_id: end for job_id, end in self._ends.items() if is_wanted(job_id)}

    def has_passed(self, job: Job) -> bool:
        """Return whether the recorded deadline of a job has passed."""
        return self._ends.get(job.id, math.inf) <= self._clock.monotonic()

    def ttl(self, job: Job) -> int:
        """Return the seconds left, at least 1; 0 for the network's own limit."""
        end = self._ends.get(job.id)
        if job.expires_at is None or end is None:
            return job.ttl(self._clock.now_ms())
        return max(1, -(-round((end - self._clock.monotonic()) * 1000) // 1000))
