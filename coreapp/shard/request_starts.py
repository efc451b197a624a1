"""Starts of requests: a bounded number per event-loop iteration, fewer while the webhook's callbacks lag behind."""

from __future__ import annotations

from collections.abc import Callable

from tidings.aio.dispatch_limit import DispatchLimit

# Requests of all links that may wait to be started.
WAITING = 20_000
# Requests per iteration, and while more than `BEHIND` callbacks are due. In an iteration each connection to the webhook
# posts at most one callback, and a message has three: without a limit, a flood is accepted sooner than it is reported.
# While only the webhook is slow, iterations are short, and even the lower number limits nothing.
MANY, FEW = 64, 4
BEHIND = 1_000


class RequestStarts(DispatchLimit):
    """Starts the requests of all links of a process in the order of their arrival."""

    def __init__(self, callbacks_due: Callable[[], int]) -> None:
        """callbacks_due: returns the number of callbacks that are due and not being posted, of all shards."""
        super().__init__(MANY, WAITING)
        self._callbacks_due = callbacks_due

    def _next(self) -> None:
        self._each = FEW if self._callbacks_due() > BEHIND else MANY
        super()._next()
