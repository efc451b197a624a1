"""What the machine itself can do in the same run: a bare piece of the work, beside which a result is put.

A calibration is a function of the ground that it stands on. It is taken before the runs and after them; what counts is
the mean of both, and how far they are apart is in the report. `benchmarks.calibrations` has them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.rig.machine import Shares
from benchmarks.rig.run import Run
from harness.mariadb import MariaDB

# What a calibration is in: work a second, or time (of a CPU) for one piece of it.
RATE, MICROSECONDS, MILLISECONDS = "1/s", "µs", "ms"


@dataclasses.dataclass(frozen=True, slots=True)
class Calibration:
    """name: what was done, as a reader knows it; unit: one of the three above."""

    name: str
    value: float
    unit: str


class Ground(Protocol):
    """What there is to measure on."""

    @property
    def directory(self) -> Path:
        """For files; gone after the benchmark."""
        ...

    async def database(self) -> MariaDB:
        """The server that the benchmark's runs use, with durable commits; started if it was not."""
        ...


Calibrate = Callable[[Ground], Awaitable[Calibration]]


@dataclasses.dataclass(frozen=True, slots=True)
class Calibrated:
    """One calibration, taken at these times; shares: what others had of the machine meanwhile, at the worst."""

    name: str
    unit: str
    values: Sequence[float]
    shares: Shares

    @property
    def value(self) -> float:
        return sum(self.values) / len(self.values)


def share(run: Run, calibration: Calibrated) -> float:
    """The result of a run as a part of a calibration, and what of it is bare work for a time.

    1/s: the run's rate to it. µs: it to the CPU of our processes for one unit. ms: it to the median of the run's first
    latency.
    """
    if calibration.unit == RATE:
        return run.rate / calibration.value
    if calibration.unit == MICROSECONDS:
        spent = run.product_us()
        return calibration.value / spent if spent else 0.0
    first = next(iter(run.latencies.values()), None)
    return calibration.value / first.p50 if first is not None and first.p50 else 0.0
