"""When the garbage collector looks: not by itself, but when memory has grown, or ten minutes have passed, and the
process has had little to do for a while.

Almost nothing here is in a cycle: objects are freed when nobody has them any more. A collection is mostly in vain, and
stops the process for as long as there are objects to look through: a quarter of a second for those of ten thousand
connections, and a tenth for what comes in one second of a flood.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

# Seconds between two looks at how much memory there is.
PERIOD = 1.0
# Bytes by which memory grows until there is a collection: of a process that is calm, and of any. Right after a flood
# there are those who wait, and most of what it has left is freed without one.
GROWTH, BUSY_GROWTH = 64 * 1024 * 1024, 256 * 1024 * 1024
# Calm is who had less than this part of a core to do in so many periods, one after the other.
BUSY, CALM = 0.1, 10
# Periods after which a calm one has a collection, memory or not: what is in a cycle may hold a file.
PERIODS = 600
# Elsewhere than on Linux, where memory cannot be read like this: new objects after which the collector looks by itself.
THRESHOLDS = (50_000, 5, 20)

_STATM = Path("/proc/self/statm")


class Collector:
    """Collects what is in cycles, now and then."""

    def __init__(self, resident: Callable[[], int], cpu: Callable[[], float] = time.process_time) -> None:
        """resident: bytes of memory that the process has; cpu: seconds that it has used."""
        self._resident = resident
        self._cpu = cpu
        self._used = cpu()
        self._least = resident()
        self._periods = self._calm = 0

    def look(self) -> None:
        """Once in each period."""
        used = self._cpu()
        self._calm = 0 if used - self._used > BUSY * PERIOD else self._calm + 1
        self._used = used
        self._periods += 1
        grown = self._resident() - self._least
        if grown > BUSY_GROWTH or (self._calm >= CALM and (grown > GROWTH or self._periods >= PERIODS)):
            gc.collect()
            self._least = self._resident()
            self._periods = 0

    def run(self) -> None:
        """For as long as the loop runs."""
        self.look()
        asyncio.get_running_loop().call_later(PERIOD, self.run)


def settle() -> None:
    """From now on, in the loop that runs. What was made so far stays, and is passed by."""
    gc.collect()
    gc.freeze()
    if _STATM.exists():
        gc.disable()
        Collector(Resident().read).run()
    else:
        gc.set_threshold(*THRESHOLDS)


class Resident:
    """The memory that this process has. Its file stays open, so that it can be read when no other can be opened."""

    def __init__(self) -> None:
        self._file = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGE_SIZE")

    def read(self) -> int:
        """Bytes."""
        return int(os.pread(self._file, 256, 0).split()[1]) * self._page
