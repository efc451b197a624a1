"""Jobs to be posted: in order for each recipient, started when the number's rate and the pair rate permit it."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import math
from collections.abc import Callable, Sequence

from coreapp.accepting.pair_rate import PairRate
from coreapp.graph_api.pace import UpstreamPace
from tidings.storage.business.jobs import Job


@dataclasses.dataclass(slots=True, eq=False)
class PostLane:
    """Jobs to one recipient, in order. The first is the one being posted, if `is_busy`."""

    peer: str
    jobs: collections.deque[tuple[Job, bytes]] = dataclasses.field(default_factory=collections.deque)
    is_busy: bool = False  # the first job is in flight, or its outcome is open
    is_delayed: bool = False  # the first job waits for the recipient's rate or back-off
    failures: int = 0  # consecutive delays of the first job
    renewed: str = ""  # id of the first job if its files were uploaded again
    lost: Sequence[str] = ()  # ids of the files of `renewed` before

    def is_first(self, job_id: str) -> bool:
        return bool(self.jobs) and self.jobs[0][0].id == job_id


class PostLanes:
    """All lanes of one shard, and the order in which their posts start."""

    def __init__(
        self,
        pace: UpstreamPace,
        pair_rate: PairRate | None,
        *,
        start: Callable[[PostLane], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        """Create the lanes.

        pair_rate: rates of the recipients; None for no limit
        start: starts the post of a lane's first job, which holds a permit of the pace
        is_stopped: returns whether no further job may be started
        """
        self._pace, self._pair_rate = pace, pair_rate
        self._start, self._is_stopped = start, is_stopped
        self._lanes: dict[str, PostLane] = {}
        # Recipients whose first job may be posted now.
        self._ready: collections.deque[str] = collections.deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._unsubscribe = pace.on_permit(self._pump)

    @property
    def waiting(self) -> int:
        """Jobs that have not ended."""
        return sum(len(lane.jobs) for lane in self._lanes.values())

    @property
    def oldest(self) -> int | None:
        """Time of the oldest job, Unix milliseconds; None without jobs."""
        return min((lane.jobs[0][0].created_at for lane in self._lanes.values() if lane.jobs), default=None)

    def find(self, peer: str) -> PostLane | None:
        return self._lanes.get(peer)

    def add(self, job: Job, content: bytes) -> PostLane:
        """Add a job behind the others to its recipient, and return their lane."""
        lane = self._lanes.get(job.peer)
        if lane is None:
            lane = self._lanes[job.peer] = PostLane(job.peer)
        lane.jobs.append((job, content))
        return lane

    def proceed(self, lane: PostLane) -> None:
        """Start the first job of a lane as soon as that is permitted, or drop the empty lane."""
        if lane.is_busy or lane.is_delayed:
            return
        if not lane.jobs:
            self._lanes.pop(lane.peer, None)
        else:
            self._ready.append(lane.peer)
            self._pump()

    def put_back(self, lane: PostLane, job: Job, content: bytes | None = None) -> None:
        """Let a lane's first job, which is no longer in flight, start again in this form.

        content: None for the same content
        """
        if lane.is_first(job.id):
            lane.jobs[0] = (job, lane.jobs[0][1] if content is None else content)
        lane.is_busy = False
        self.proceed(lane)

    def hold(self, lane: PostLane, seconds: float) -> None:
        """Start no job of this lane for some time."""
        lane.is_delayed = True
        asyncio.get_running_loop().call_later(seconds, self._resume, lane)

    def end(self, job: Job) -> None:
        """Remove a job that is the first of its lane, and proceed with the next one."""
        lane = self._lanes.get(job.peer)
        if lane is not None and lane.is_first(job.id):
            lane.jobs.popleft()
            lane.is_busy, lane.failures = False, 0
            self.proceed(lane)

    def remove(self, chosen: Callable[[Job], bool]) -> Sequence[Job]:
        """Remove the chosen jobs, none of which is in flight, and return them."""
        removed: list[Job] = []
        for lane in list(self._lanes.values()):
            found = [entry for entry in lane.jobs if chosen(entry[0])]
            for entry in found:
                lane.jobs.remove(entry)
            removed += [job for job, _ in found]
            if found:
                self.proceed(lane)
        return removed

    def close(self) -> None:
        """Start no more jobs."""
        self._is_closed = True
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()

    def _pump(self) -> None:
        """Start the jobs that are permitted now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._ready and not self._is_closed and not self._is_stopped():
            lane = self._lanes.get(self._ready[0])
            if lane is None or not lane.jobs or lane.is_busy or lane.is_delayed:
                self._ready.popleft()
                continue
            wait = self._pace.admit()
            if wait:
                if math.isfinite(wait):
                    self._timer = asyncio.get_running_loop().call_later(wait, self._pump)
                return
            self._ready.popleft()
            pause = self._pair_rate.take(lane.peer) if self._pair_rate is not None else 0.0
            if pause:
                self.hold(lane, pause)
                self._pace.refund()
                continue
            lane.is_busy = True
            self._start(lane)

    def _resume(self, lane: PostLane) -> None:
        lane.is_delayed = False
        if self._lanes.get(lane.peer) is lane:
            self.proceed(lane)
