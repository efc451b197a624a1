"""Schedule of the interpreter's garbage collector: when memory has grown, or after ten minutes if the process is idle.

Almost no object here is part of a cycle, and objects without one are freed by reference counting. A collection mostly
finds nothing, and stops the process for as long as it takes to scan all objects: a quarter of a second for those of
10,000 connections, a tenth for those that one second of a flood creates.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

# Seconds between two checks of the memory in use.
PERIOD = 1.0
# Bytes by which memory grows until a collection: in an idle process, and in any. Right after a flood its connections
# still wait, and most of what it left is freed without a collection.
GROWTH, BUSY_GROWTH = 64 * 1024 * 1024, 256 * 1024 * 1024
# A process is idle when it used less than this part of a core in each of the last `CALM` periods.
BUSY, CALM = 0.1, 10
# Periods after which an idle process collects even if memory has not grown: a cycle may hold a file open.
PERIODS = 600
# Other systems than Linux, where memory cannot be read like this: the collector's own thresholds, in new objects.
THRESHOLDS = (50_000, 5, 20)

_STATM = Path("/proc/self/statm")


class InterpreterCollections:
    """Runs the interpreter's garbage collector when memory has grown, or after `PERIODS` if the process is idle."""

    def __init__(self, resident: Callable[[], int], cpu: Callable[[], float] = time.process_time) -> None:
        """resident(): bytes of memory in use. cpu(): CPU seconds used."""
        self._resident = resident
        self._cpu = cpu
        self._used = cpu()
        self._least = resident()
        self._periods = self._calm = 0

    def sample(self) -> None:
        """Check once, and collect if it is time; called once per period."""
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
        """Check now and then once per period, as long as the event loop runs."""
        self.sample()
        asyncio.get_running_loop().call_later(PERIOD, self.run)


def settle() -> None:
    """Take over garbage collection in the running event loop. Objects that exist now are never scanned again."""
    gc.collect()
    gc.freeze()
    if _STATM.exists():
        gc.disable()
        InterpreterCollections(ResidentMemory().read).run()
    else:
        gc.set_threshold(*THRESHOLDS)


class ResidentMemory:
    """Memory of this process. Its file stays open, so that it can be read when no descriptor is left."""

    def __init__(self) -> None:
        self._file = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGE_SIZE")

    def read(self) -> int:
        """Return the resident set size in bytes."""
        return int(os.pread(self._file, 256, 0).split()[1]) * self._page
