"""Time limit of the same length for many blocks of code, with one timer for all of them.

`asyncio.timeout` starts and cancels a timer for each block: 3.5 µs, which is a tenth of a post. Of blocks with the same
limit the oldest one ends first, so that only it needs a timer.
"""

from __future__ import annotations

import asyncio
from types import TracebackType


class TimeLimit:
    """Cancels blocks that take longer than `seconds`, as `asyncio.timeout` does: they raise `TimeoutError`.

    Use `with limit:` in a task; a task is in at most one block of a limit.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # For each task in a block, the oldest block first: its end as event-loop time, and the requests to cancel the
        # task that it had at the start.
        self._blocks: dict[asyncio.Task[object], tuple[float, int]] = {}
        # Tasks whose block was cancelled, with those requests.
        self._expired: dict[asyncio.Task[object], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        task = _current_task()
        at = task.get_loop().time() + self._seconds
        self._blocks[task] = at, task.cancelling()
        if self._timer is None:
            self._timer = task.get_loop().call_at(at, self._check)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task = _current_task()
        if self._blocks.pop(task, None) is not None:
            return
        requests = self._expired.pop(task)
        if task.uncancel() <= requests and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _check(self) -> None:
        """Cancel the blocks whose time is over, and start the timer for the oldest of the others."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._blocks:
            task, (at, requests) = next(iter(self._blocks.items()))
            if at > now:
                self._timer = loop.call_at(at, self._check)
                return
            del self._blocks[task]
            self._expired[task] = requests
            task.cancel()


def _current_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a time limit needs a task")
    return task
