"""What any process shows of itself besides what it counts: how late its event loop is, and the room on its disks."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from prometheus_client import Gauge, Histogram

from tidings.runtime import service

log = logging.getLogger(__name__)

LAG = Histogram(
    "tidings_event_loop_lag_seconds",
    "How much later than asked for the event loop woke up a task, tried a few times a second",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
FREE = Gauge("tidings_disk_free_bytes", "Room on the disk of a directory of this process", ["directory"])
SIZE = Gauge("tidings_disk_size_bytes", "Size of that disk", ["directory"])

# Seconds between two looks at the event loop, and at the disks.
LAG_INTERVAL, DISK_INTERVAL = 0.25, 10.0


class Vitals:
    """Service: looks at the event loop and at the disks."""

    name = "vitals"

    def __init__(self, directories: Mapping[str, Path]) -> None:
        """directories: what the process writes to, by what the metrics call it."""
        self._directories = directories

    async def run(self, stop: asyncio.Event) -> None:
        looking = asyncio.create_task(self._look_at_disks(), name="disks")
        loop = asyncio.get_running_loop()
        try:
            while not stop.is_set():
                due = loop.time() + LAG_INTERVAL
                if not await service.wait_for(stop, LAG_INTERVAL):
                    LAG.observe(max(0.0, loop.time() - due))
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            for name in self._directories:
                _forget(name)

    async def _look_at_disks(self) -> None:
        while True:
            for name, directory in self._directories.items():
                # In a thread of its own, since a remote disk that is gone does not answer.
                try:
                    found = await asyncio.to_thread(os.statvfs, directory)
                except OSError as error:
                    log.debug("disk.unknown", extra={"directory": str(directory), "error": repr(error)})
                    _forget(name)
                    continue
                FREE.labels(name).set(found.f_bavail * found.f_frsize)
                SIZE.labels(name).set(found.f_blocks * found.f_frsize)
            await asyncio.sleep(DISK_INTERVAL)


def _forget(name: str) -> None:
    FREE.remove(name)
    SIZE.remove(name)
