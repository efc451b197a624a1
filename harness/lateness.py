"""Lateness of tasks on a busy machine, for limits in tests: `elapsed < 1.0 + lateness.seconds`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

# Seconds between two wake-ups of the measured task.
_TICK = 0.01


class Lateness:
    """Sum of the delays of a task that only sleeps, during a measurement of others."""

    def __init__(self) -> None:
        # Sum of the seconds by which the wake-ups so far came too late.
        self.seconds = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(_TICK)
            self.seconds += max(0.0, time.monotonic() - began - _TICK)


@contextlib.asynccontextmanager
async def measured() -> AsyncIterator[Lateness]:
    """Measure while the block runs."""
    lateness = Lateness()
    task = asyncio.create_task(lateness.run())
    try:
        yield lateness
    finally:
        task.cancel()
        await asyncio.wait([task])
