"""Calibrations: the machine's performance on a bare piece of the work, in the same run as the results.

A calibration is a function of the ground that it runs on. It is taken before and after the runs: the result is the mean
of both, and the report shows both values. `benchmarks.calibrations` has the functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.rig.machine import Shares
from benchmarks.rig.run import Run
from harness.mariadb import MariaDB

# Units of a calibration: operations per second, or time (of a CPU) per operation.
RATE, MICROSECONDS, MILLISECONDS = "1/s", "µs", "ms"


@dataclasses.dataclass(frozen=True, slots=True)
class Calibration:
    """Result of one calibration."""

    name: str  # for the report: the operation
    value: float
    unit: str  # one of the three above


class CalibrationResources(Protocol):
    """Resources for a calibration."""

    @property
    def directory(self) -> Path:
        """Directory for files, which is removed after the benchmark."""
        ...

    async def database(self) -> MariaDB:
        """Return the database server of the benchmark's runs, with durable commits, and start it if necessary."""
        ...


Calibrate = Callable[[CalibrationResources], Awaitable[Calibration]]


@dataclasses.dataclass(frozen=True, slots=True)
class Calibrated:
    """One calibration with all its results."""

    name: str
    unit: str
    values: Sequence[float]
    shares: Shares  # the one with the most CPU of other programs

    @property
    def value(self) -> float:
        return sum(self.values) / len(self.values)


def share(run: Run, calibration: Calibrated) -> float:
    """Return the result of a run as a fraction of a calibration; for a time, the fraction that is bare work.

    1/s: the run's rate, relative to the calibration. µs: the calibration, relative to the CPU of our processes per
    unit. ms: the calibration, relative to the median of the run's first latency.
    """
    if calibration.unit == RATE:
        return run.rate / calibration.value
    if calibration.unit == MICROSECONDS:
        spent = run.product_us()
        return calibration.value / spent if spent else 0.0
    first = next(iter(run.latencies.values()), None)
    return calibration.value / first.p50 if first is not None and first.p50 else 0.0
