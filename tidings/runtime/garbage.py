"""What the garbage collector looks through: what has come within a second; and everything, when memory has grown, or
ten minutes have passed.

Almost nothing here is in a cycle: objects are freed when nobody has them any more. A collection is mostly in vain, and
stops the process for as long as there are objects to look through: a quarter of a second for all of a process with ten
thousand connections, and no less for the youngest, when ten thousand requests have come since the last one.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

# More new objects than there were, after which these are looked through, and how often what is left of them is. Where
# many requests come and go their number swings by ten thousands.
THRESHOLDS = (50_000, 5, 20)
# Seconds after which what is there is passed by.
PERIOD = 1.0
# Bytes by which memory grows until everything is looked through: of a process that has less than this part of a core to
# do, and of one that has more.
GROWTH, BUSY_GROWTH = 64 * 1024 * 1024, 256 * 1024 * 1024
BUSY = 0.1
# Periods after which one that is not busy looks at everything, memory or not: what is in a cycle may hold a file.
PERIODS = 600

_STATM = Path("/proc/self/statm")


class Collector:
    """Objects that live for a second are passed by from then on. Those in cycles wait for a look at everything."""

    def __init__(self, resident: Callable[[], int], cpu: Callable[[], float] = time.process_time) -> None:
        """resident: bytes of memory that the process has; cpu: seconds that it has used."""
        self._resident = resident
        self._cpu = cpu
        self._used = cpu()
        self._least = resident()
        self._periods = 0

    def look(self) -> None:
        """Once in each period."""
        used = self._cpu()
        is_busy = used - self._used > BUSY * PERIOD
        self._used = used
        self._periods += 1
        grown = self._resident() - self._least
        if grown > BUSY_GROWTH or (not is_busy and (grown > GROWTH or self._periods >= PERIODS)):
            gc.unfreeze()
            gc.collect()
            self._least = self._resident()
            self._periods = 0
        gc.freeze()

    def run(self) -> None:
        """For as long as the loop runs."""
        self.look()
        asyncio.get_running_loop().call_later(PERIOD, self.run)


def settle() -> None:
    """What was made so far stays, and so does most of what will be: from now on, in the loop that runs.

    Elsewhere than on Linux, where memory cannot be read like this, the collector goes on as it is used to.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    if _STATM.exists():
        Collector(Resident().read).run()


class Resident:
    """The memory that this process has. Its file stays open, so that it can be read when no other can be opened."""

    def __init__(self) -> None:
        self._file = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGE_SIZE")

    def read(self) -> int:
        """Bytes."""
        return int(os.pread(self._file, 256, 0).split()[1]) * self._page
