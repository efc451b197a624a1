"""Polling for effects of another process that are not announced: a row, a file, a response.

Events in this process have signals: wait for those instead.
"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

# Seconds between two polls: short compared with the awaited event, long compared with a query.
PAUSE = 0.05


async def until(
    holds: Callable[[], bool] | Callable[[], Awaitable[bool]], *, seconds: float = 30.0, pause: float = PAUSE
) -> None:
    """Poll until `holds` is true; a plain function is called in a thread, as it may block. Raises `TimeoutError`."""
    async with asyncio.timeout(seconds):
        while not (await holds() if inspect.iscoroutinefunction(holds) else await asyncio.to_thread(holds)):  # noqa: ASYNC110
            await asyncio.sleep(pause)


def wait_until(
    holds: Callable[[], bool], *, seconds: float = 30.0, pause: float = PAUSE, failure: Callable[[], str] = str
) -> None:
    """Poll like `until`, blocking. Raises `TimeoutError` with the text of `failure`."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(failure())
        time.sleep(pause)


def wait_until_up(
    process: subprocess.Popen[bytes], responses: Callable[[], bool], log: Path, *, seconds: float
) -> None:
    """Wait until a server responds. Raises `RuntimeError` with the end of its log when it ends, or takes too long."""

    def is_up_or_ended() -> bool:
        return responses() or process.poll() is not None

    try:
        wait_until(is_up_or_ended, seconds=seconds, pause=0.02)
    except TimeoutError:
        ended = f"does not respond after {seconds:.0f} s"
    else:
        if process.poll() is None:
            return
        ended = f"ended with status {process.returncode}"
    raise RuntimeError(f"{process.args!r} {ended}:\n{log.read_text(errors='replace')[-2000:]}")
