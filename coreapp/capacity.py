"""Admission of messages: a gate that closes at a limit and opens again at half of it."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter

from coreapp.errors import RequestRefused
from tidings.wire import codes

REFUSED = Counter("tidings_admission_refused_total", "Messages refused because a queue was full", ["queue"])


class JobCount:
    """Number of jobs in the queue, including those whose commit is in flight."""

    def __init__(self) -> None:
        self._count = 0
        self.left = 0  # jobs that have left the queue since the start

    def __call__(self) -> int:
        return self._count

    def add(self, count: int) -> None:
        self._count += count

    def remove(self, count: int) -> None:
        self._count -= count
        self.left += count


class CapacityGate:
    """Closes when the count reaches `limit`, and opens again when it has fallen to `limit * resume`."""

    def __init__(self, name: str, limit: int, *, resume: float = 0.5) -> None:
        self.name = name
        self.limit = limit
        self._resume_at = int(limit * resume)
        self._closed = False
        # Created at once with the value 0, so that the first refusal is visible as an increase.
        self.refused = REFUSED.labels(name)

    def is_open(self, count: int) -> bool:
        """Return whether one more item may enter a queue that holds `count` items."""
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
        """Raise `RequestRefused` with code 1016 while a queue is full or has not yet drained to half of its limit."""
        for gate, count in self._gates:
            waiting = count()
            if not gate.is_open(waiting):
                gate.refused.inc()
                raise RequestRefused(
                    codes.OVERLOADED,
                    f"the {gate.name} queue has reached its limit of {gate.limit}: {waiting} are waiting; "
                    f"messages are accepted again when it has drained to {int(gate.limit / 2)}",
                    retry_after=5,
                )
