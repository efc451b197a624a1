"""Workers: several processes of one command, restarted when they die and stopped together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cli.child_process import ChildProcess

log = logging.getLogger(__name__)

# Seconds that a worker has to stop, in addition to the period in which it drains its connections.
STOP_SECONDS = 30.0


class Workers:
    """Runs one worker per environment. Workers inherit the output of this process."""

    def __init__(self, command: str, environments: Sequence[Mapping[str, str]], *, grace: float = 0.0) -> None:
        """grace: seconds that each worker has to stop, in addition to `STOP_SECONDS`."""
        self._workers = [
            ChildProcess(command, variables, _Log(index), name=f"worker {index}")
            for index, variables in enumerate(environments)
        ]
        self._seconds = STOP_SECONDS + grace

    async def run(self, stop: asyncio.Event, ready: Callable[[Mapping[str, Any]], None]) -> None:
        """Keep the workers running until `stop`. Raises `guard.Failure` when one does not become ready at the start.

        ready: called once all workers are ready, with the ready message of the first.
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
    """Logs the events of one worker."""

    def __init__(self, index: int) -> None:
        self._index = index

    def ended(self, status: int, again: float) -> None:
        log.error("worker.ended", extra={"worker": self._index, "status": status, "again_s": again})

    def not_started(self, error: Exception) -> None:
        log.error("worker.not_started", extra={"worker": self._index, "error": str(error)})

    def is_back(self) -> None:
        """Ignore the event: the worker itself logs that it is ready."""

    def does_not_stop(self) -> None:
        log.error("worker.killed", extra={"worker": self._index})
