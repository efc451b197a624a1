"""Workers: several processes of one command, started again when they die, stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cli import guard
from cli.supervisor import FIRST_BACKOFF, MAX_BACKOFF, START_SECONDS, WELL_AFTER

log = logging.getLogger(__name__)

# Seconds that a worker has to stop, beyond those over which it lets its clients go.
STOP_SECONDS = 30.0


class Workers:
    """One worker for each environment. What they log goes where this process logs."""

    def __init__(self, command: str, environments: Sequence[Mapping[str, str]], *, grace: float = 0.0) -> None:
        """grace: seconds that each has to stop, beyond the usual ones."""
        self._workers = [_Worker(command, index, variables) for index, variables in enumerate(environments)]
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
            await asyncio.gather(*[worker.stop(self._seconds) for worker in self._workers])


class _Worker:
    def __init__(self, command: str, index: int, environment: Mapping[str, str]) -> None:
        self._command = command
        self._index = index
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline = -1

    async def start(self) -> Mapping[str, Any]:
        """Start it and wait until it is ready; what it says. Raises `guard.Failure`."""
        ready, ready_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "cli.main", self._command),
                *(f"--ready-fd={ready_write}", f"--lifeline-fd={lifeline_read}"),
                env=dict(self._environment),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(ready_write, lifeline_read),
                # What stops us in a terminal is for us to pass on.
                start_new_session=True,
            )
        finally:
            os.close(ready_write)
            os.close(lifeline_read)
        try:
            async with asyncio.timeout(START_SECONDS):
                said = await _read(ready)
        except TimeoutError:
            raise guard.Failure(f"worker {self._index} was not ready after {START_SECONDS:.0f} s") from None
        if not said:
            status = await self._process.wait()
            raise guard.Failure(f"worker {self._index} ended at its start with status {status}")
        where: Mapping[str, Any] = json.loads(said)
        return where

    async def keep(self) -> None:
        """Start it again whenever it ends."""
        backoff = FIRST_BACKOFF
        while True:
            assert self._process is not None
            started = time.monotonic()
            status = await self._process.wait()
            if time.monotonic() - started > WELL_AFTER:
                backoff = FIRST_BACKOFF
            log.error("worker.ended", extra={"worker": self._index, "status": status, "again_s": backoff})
            self._cut_lifeline()
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF)
            try:
                await self.start()
            except (guard.Failure, OSError, ValueError) as failure:
                log.error("worker.not_started", extra={"worker": self._index, "error": str(failure)})

    async def stop(self, seconds: float) -> None:
        """Ask it to stop; after so many seconds it is killed."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(seconds):
                    await process.wait()
            except TimeoutError:
                log.error("worker.killed", extra={"worker": self._index})
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        self._cut_lifeline()

    def _cut_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


async def _read(descriptor: int) -> bytes:
    """What is said until the end of a pipe."""
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(descriptor, "rb")
    )
    try:
        return await stream.read()
    finally:
        transport.close()
