"""Restarts of a process that dies, as a supervisor makes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from harness.processes import Process, ProcessEnded


class Restarts:
    """Deaths of a process so far."""

    def __init__(self) -> None:
        self.deaths = 0


@contextlib.asynccontextmanager
async def restarted(process: Process, extra: Mapping[str, str] | None = None) -> AsyncIterator[Restarts]:
    """Start a process, and start it again whenever it ends, until the block ends.

    extra: variables of each run
    """
    restarts = Restarts()

    async def supervise() -> None:
        while True:
            # Raised when it dies before it is ready.
            with contextlib.suppress(ProcessEnded):
                await process.start(extra)
            await process.wait()
            restarts.deaths += 1

    supervising = asyncio.create_task(supervise())
    try:
        yield restarts
    finally:
        supervising.cancel()
        await asyncio.gather(supervising, return_exceptions=True)
