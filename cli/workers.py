"""Workers: several processes of one command, started again when they die, stopped together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cli.child_process import ChildProcess

log = logging.getLogger(__name__)

# Seconds that a worker has to stop, beyond those over which it lets its clients go.
STOP_SECONDS = 30.0


class Workers:
    """One worker for each environment. What they log goes where this process logs."""

    def __init__(self, command: str, environments: Sequence[Mapping[str, str]], *, grace: float = 0.0) -> None:
        """grace: seconds that each has to stop, beyond the usual ones."""
        self._workers = [
            ChildProcess(command, variables, _Log(index), name=f"worker {index}")
            for index, variables in enumerate(environments)
        ]
        self._seconds = STOP_SECONDS + grace

    async def run(self, stop: asyncio.Event, ready: Callable[[Mapping[str, Any]], None]) -> None:
        """Keep them running until `stop`; `ready` is called with what the first one says when all are ready.

        Raises `guard.Failure` when one of them does not come up at the start.
        """
        keepers: list[asyncio.Task[None]] = []
        try:
            started = await asyncio.gather(*[worker.start() for worker in self._workers])
            ready(started[0])
            keepers += [asyncio.create_task(worker.keep()) for worker in self._workers]
            await stop.wait()
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            await asyncio.gather(*[worker.end(self._seconds) for worker in self._workers])


class _Log:
    """What happens to one worker, logged."""

    def __init__(self, index: int) -> None:
        self._index = index

    def ended(self, status: int, again: float) -> None:
        log.error("worker.ended", extra={"worker": self._index, "status": status, "again_s": again})

    def not_started(self, error: Exception) -> None:
        log.error("worker.not_started", extra={"worker": self._index, "error": str(error)})

    def is_back(self) -> None:
        """It logs itself that it is ready."""

    def does_not_stop(self) -> None:
        log.error("worker.killed", extra={"worker": self._index})
