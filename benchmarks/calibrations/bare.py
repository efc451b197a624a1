"""Shared parts of the calibrations by load: a bare server, and clients that send requests to it in a loop."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from benchmarks.rig.run import RunFailed
from harness import spawn
from harness.mariadb import free_port

ROOT = Path(__file__).parents[2]
START_SECONDS = 20.0
# Seconds of load: before the measurement, and measured.
WARM_UP, SECONDS = 0.5, 2.0
# Concurrent clients, as in the benchmarks of messages.
CLIENTS = 64


@contextlib.asynccontextmanager
async def server(what: str) -> AsyncIterator[int]:
    """Run one of `bare_servers` as a process; yield its port. Raises `RunFailed`."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.calibrations.bare_servers", what, str(port)]
    process = spawn.start(command, cwd=ROOT)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not await _responds(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RunFailed(f"the bare server {what} did not start")
            await asyncio.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


async def _responds(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def rate(clients: Sequence[Callable[[], Awaitable[None]]]) -> float:
    """Return how many actions per second the clients complete, each in a loop. Raises whatever they raise."""
    done = 0

    async def loop(action: Callable[[], Awaitable[None]], until: float) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await action()
            done += 1

    for seconds in (WARM_UP, SECONDS):
        done, started = 0, time.perf_counter()
        await asyncio.gather(*(loop(action, started + seconds) for action in clients))
        found = done / (time.perf_counter() - started)
    return found
