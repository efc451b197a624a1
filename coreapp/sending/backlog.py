"""Backlog of the jobs that an earlier owner left, sent at a rate that leaves time for new messages.

Each of these jobs costs a commit, two receipts and three callbacks soon after it was sent. The rate grows while the
event loop is on time, and halves while it is late.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Collection, Sequence

from coreapp.pace import TICK, Pace
from tidings.storage.business.jobs import Job

# Jobs per second: the rate at first, the lowest and the highest.
FIRST_RATE, LEAST_RATE, MOST_RATE = 100.0, 50.0, 300.0


class Backlog:
    """Jobs in the order of delivery, which leave while `may_send` returns true."""

    def __init__(self, release: Callable[[Sequence[Job]], None], may_send: Callable[[], bool]) -> None:
        """release(jobs): sends jobs, which have left the backlog."""
        self._release = release
        self._may_send = may_send
        self._jobs: collections.deque[Job] = collections.deque()
        # Number of jobs by recipient.
        self._peers: collections.Counter[str] = collections.Counter()
        self._pace = Pace(FIRST_RATE, LEAST_RATE, MOST_RATE)
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def first(self) -> Job | None:
        """Job that leaves next; None without jobs."""
        return self._jobs[0] if self._jobs else None

    def holds(self, peer: str) -> bool:
        """Return whether a job to this recipient waits here. Later jobs to it must wait behind."""
        return peer in self._peers

    def add(self, jobs: Sequence[Job]) -> None:
        """Add jobs at the end."""
        self._jobs.extend(jobs)
        self._peers.update(job.peer for job in jobs)
        self.start()

    def find(self, chosen: Callable[[Job], bool]) -> list[Job]:
        """Return the chosen jobs."""
        return [job for job in self._jobs if chosen(job)]

    def remove(self, ids: Collection[str]) -> None:
        """Remove the jobs with these ids; others are ignored."""
        if self._jobs:
            self._jobs = collections.deque(job for job in self._jobs if job.id not in ids)
            self._peers = collections.Counter(job.peer for job in self._jobs)

    def start(self) -> None:
        """Release jobs from now on, if there are any and they may be sent."""
        if self._timer is None and self._jobs and self._may_send():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(loop.time() + TICK, self._tick)

    def _tick(self) -> None:
        assert self._timer is not None
        late = asyncio.get_running_loop().time() - self._timer.when()
        self._timer = None
        if not self._may_send():
            return
        released = [self._jobs.popleft() for _ in range(min(self._pace.portion(late), len(self._jobs)))]
        for job in released:
            self._peers[job.peer] -= 1
            if not self._peers[job.peer]:
                del self._peers[job.peer]
        self.start()
        self._release(released)
