"""How late a busy machine runs a task, for limits of tests: `elapsed < 1.0 + lateness.seconds`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

# Seconds between two wake-ups of the task that is measured.
_TICK = 0.01


class Lateness:
    """Sum of the delays of a task that only sleeps, while others are measured."""

    def __init__(self) -> None:
        # Seconds by which the wake-ups so far came too late, together.
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
