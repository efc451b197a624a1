"""One measured run, and the ratio of two kinds of alternating runs: plain values."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.rig import summary
from benchmarks.rig.sampler import Samples, role
from benchmarks.rig.summary import Summary

# Processes that work for a business; recipients, webhook, clients and database are not among them.
PRODUCT = ("webapp", "coreapp", "network")


class RunFailed(Exception):
    """The run is no measurement; `str()` gives the reason."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run without an error."""

    name: str  # short, valid as a file name
    title: str
    count: int  # units done
    unit: str  # such as messages, deliveries, connections
    seconds: float  # for all units
    rate: float  # units per second
    latencies: Mapping[str, Summary]  # by operation; tables and plots show the first one
    throughput: Sequence[float]  # units done in each second
    samples: Samples
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # for JSON: inputs of the run
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # for JSON: further figures

    @property
    def is_marked(self) -> bool:
        """Return whether other programs used too much of the machine for the run to give a ratio."""
        return self.samples.shares.is_marked

    def cpu_us(self) -> dict[str, int]:
        """Return the microseconds of CPU per unit, by process."""
        return {name: round(used / self.count * 1e6) for name, used in sorted(self.samples.cpu.items())}

    def product_us(self) -> int:
        """Return the microseconds of CPU per unit of our processes together."""
        return sum(used for name, used in self.cpu_us().items() if role(name) in PRODUCT)

    def as_dict(self) -> dict[str, Any]:
        """Return the run as a JSON object."""
        samples = self.samples
        return {
            "name": self.name,
            "title": self.title,
            "parameters": dict(self.parameters),
            "unit": self.unit,
            self.unit: self.count,
            "seconds": round(self.seconds, 2),
            "rate": round(self.rate, 1),
            "latencies_ms": {name: dataclasses.asdict(found) for name, found in self.latencies.items()},
            "throughput": list(self.throughput),
            "others_cpu": samples.shares.others,
            "stolen_cpu": samples.shares.stolen,
            "own_cpu": samples.shares.own,
            "marked": self.is_marked,
            "load": round(samples.load, 2),
            "cpu_us": self.cpu_us(),
            "product_us": self.product_us(),
            "peak_rss_mb": {name: round(size / 1e6, 1) for name, size in sorted(samples.peak_rss.items())},
            "gc": {
                name: {
                    "pauses": found.count,
                    "seconds": round(found.seconds, 4),
                    "throughput": summary.gc_throughput(found.seconds, samples.seconds),
                    # Beyond the last bound of the histogram the value is unknown.
                    "longest_ms": round(found.longest * 1000, 2) if math.isfinite(found.longest) else None,
                }
                for name, found in samples.gc.items()
            },
            "commits": {family: round(n / self.count, 4) for family, n in samples.commits.items()},
            "commit_statements": round(samples.statements / self.count, 4),
            "log_bytes": round(samples.log_bytes / self.count),
            "queues": samples.deepest(),
            "points": [_point(point) for point in samples.points],
            "details": dict(self.details),
        }


def _point(point: Any) -> dict[str, Any]:
    return {
        "at": round(point.at, 2),
        "rss_mb": {name: round(size / 1e6, 1) for name, size in point.rss.items()},
        "cpu": {name: round(used, 2) for name, used in point.cpu.items()},
        "queues": {name: depth for name, depth in point.queues.items() if depth},
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Ratio:
    """Ratio of the rates of two kinds of alternating runs."""

    name: str
    base: str
    value: float | None  # median of the rounds; None when no round counts
    rounds: Sequence[float] = ()
    why: str = ""  # reason why rounds do not count


def ratio(name: str, base: str, rounds: Sequence[tuple[Run | None, Run | None]]) -> Ratio:
    """Return the ratio of `name` to `base`. Only rounds without marked runs count.

    rounds: (run of `base`, run of `name`); None for a failed one
    """
    whole = [(one, other) for one, other in rounds if one is not None and other is not None]
    clean = [(one, other) for one, other in whole if not one.is_marked and not other.is_marked]
    if not clean:
        why = "in every round others took over 5 % of the machine" if whole else "no round had both runs"
        return Ratio(name, base, None, why=why)
    found = [other.rate / one.rate for one, other in clean]
    left_out = len(rounds) - len(clean)
    return Ratio(name, base, statistics.median(found), found, f"{left_out} rounds left out" if left_out else "")


def median(runs: Sequence[Run]) -> Run:
    """Return the run with the median rate, of the unmarked ones if there are any."""
    chosen = [run for run in runs if not run.is_marked] or list(runs)
    return sorted(chosen, key=lambda run: run.rate)[(len(chosen) - 1) // 2]
