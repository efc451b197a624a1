"""Progress output during a run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

INTERVAL = 5.0  # seconds


@contextlib.asynccontextmanager
async def shown(read: Callable[[], Awaitable[str]], *, interval: float = INTERVAL) -> AsyncIterator[None]:
    """Print the progress every `interval` seconds during the block.

    read: returns the progress in a few words
    """
    began = time.monotonic()

    async def show() -> None:
        while True:
            await asyncio.sleep(interval)
            print(f"    {time.monotonic() - began:4.0f} s: {await read()}", flush=True)

    showing = asyncio.create_task(show(), name="progress")
    try:
        yield
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
