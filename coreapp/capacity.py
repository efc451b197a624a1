"""Whether one more message may come in: a gate that closes at a limit and opens again at half of it."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter

from coreapp.errors import Refused
from tidings.wire import codes

REFUSED = Counter("tidings_admission_refused_total", "Messages refused because a queue was full", ["queue"])


class JobCount:
    """How many jobs are in the queue, of those that are on disk or being committed. left: how many have left it."""

    def __init__(self) -> None:
        self._count = 0
        self.left = 0

    def __call__(self) -> int:
        return self._count

    def add(self, count: int) -> None:
        self._count += count

    def remove(self, count: int) -> None:
        self._count -= count
        self.left += count


class CapacityGate:
    """Closed from the moment that the count reaches `limit` until it has fallen to `limit * resume`."""

    def __init__(self, name: str, limit: int, *, resume: float = 0.5) -> None:
        self.name = name
        self.limit = limit
        self._resume_at = int(limit * resume)
        self._closed = False
        # There from the start, at 0: a first refusal is seen as one more.
        self.refused = REFUSED.labels(name)

    def is_open(self, count: int) -> bool:
        """May one more come, with `count` in the queue now?"""
        if self._closed:
            self._closed = count > self._resume_at
        elif count >= self.limit:
            self._closed = True
        return not self._closed


class Admission:
    """The two limits of POST /v1/messages: the job queue and the callback queue."""

    def __init__(
        self,
        *,
        jobs: CapacityGate,
        count_jobs: Callable[[], int],
        callbacks: CapacityGate,
        count_callbacks: Callable[[], int],
    ) -> None:
        self._gates = ((jobs, count_jobs), (callbacks, count_callbacks))

    def check(self) -> None:
        """Raises `Refused` with code 1016 while a queue is full or has not yet drained to half."""
        for gate, count in self._gates:
            waiting = count()
            if not gate.is_open(waiting):
                gate.refused.inc()
                raise Refused(
                    codes.OVERLOADED,
                    f"the {gate.name} queue has reached its limit of {gate.limit}: {waiting} are waiting; "
                    f"messages are taken again when it has drained to {int(gate.limit / 2)}",
                    retry_after=5,
                )
