"""Statistics of latencies, moments and points: pure functions."""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
from collections.abc import Iterable, Sequence

from harness import measure

_BOUND = re.compile(r'le="([^"]+)"')


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """Latencies in milliseconds."""

    count: int
    mean: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def summarise(seconds: Sequence[float]) -> Summary:
    """Summarise latencies, with percentiles by nearest rank. Raises `ValueError` for none."""
    if not seconds:
        raise ValueError("there is nothing to summarise")
    found = {name: round(value * 1000, 3) for name, value in measure.percentiles(seconds).items()}
    mean = round(statistics.fmean(seconds) * 1000, 3)
    return Summary(len(seconds), mean, round(min(seconds) * 1000, 3), **found)


def of_histogram(before: str, after: str, name: str, labels: str = "") -> Summary | None:
    """Summarise a Prometheus histogram of seconds between two scrapes; None when it counted nothing.

    The mean is exact. The minimum is the lower bound of the first non-empty bucket. The percentiles are interpolated
    linearly within their bucket; beyond the last bound they are that bound.
    """
    count = _grown(before, after, f"{name}_count", labels)
    if count < 1:
        return None
    earlier, later = (_buckets(text, name, labels) for text in (before, after))
    below = [(bound, found - earlier.get(bound, 0.0)) for bound, found in sorted(later.items())]
    at = {p: round(_interpolate(below, count * p / 100) * 1000, 3) for p in (50, 90, 95, 99, 100)}
    floors = [0.0, *(bound for bound, _ in below)]
    least = next(floor for floor, (_, found) in zip(floors, below, strict=False) if found)
    mean = round(_grown(before, after, f"{name}_sum", labels) / count * 1000, 3)
    return Summary(int(count), mean, round(least * 1000, 3), at[50], at[90], at[95], at[99], at[100])


def _buckets(text: str, name: str, labels: str) -> dict[float, float]:
    """Return the cumulative count by upper bound."""
    found: dict[float, float] = {}
    for line in text.splitlines():
        if line.startswith(f"{name}_bucket") and labels in line:
            bound = _BOUND.search(line)
            assert bound is not None, line
            found[float(bound[1])] = found.get(float(bound[1]), 0.0) + float(line.rpartition(" ")[2])
    return found


def _grown(before: str, after: str, name: str, labels: str) -> float:
    return measure.metric(after, name, labels) - measure.metric(before, name, labels)


def _interpolate(below: Sequence[tuple[float, float]], rank: float) -> float:
    floor, under = 0.0, 0.0
    for bound, count in below:
        if count >= rank:
            part = (rank - under) / (count - under) if count > under else 1.0
            return floor if math.isinf(bound) else floor + (bound - floor) * part
        floor, under = bound, count
    return floor


def per_second(moments: Iterable[float], since: float) -> list[int]:
    """Count the moments in each second from `since` on."""
    counts: dict[int, int] = {}
    for moment in moments:
        second = int(max(0.0, moment - since))
        counts[second] = counts.get(second, 0) + 1
    return [counts.get(second, 0) for second in range(max(counts, default=-1) + 1)]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of y over x, by least squares; 0 for fewer than two different x."""
    if len({x for x, _ in points}) < 2:
        return 0.0
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope


def drift(rates: Sequence[float]) -> float:
    """Return the relative change of the mean from the first to the last quarter; 0 for fewer than four rates."""
    quarter = len(rates) // 4
    first = statistics.fmean(rates[:quarter]) if quarter else 0.0
    return statistics.fmean(rates[-quarter:]) / first - 1 if first else 0.0


def gc_throughput(pauses: float, seconds: float) -> float:
    """Return the percentage of the time without pauses of the interpreter GC: GC throughput."""
    return round(100 * (1 - pauses / seconds), 3) if seconds else 100.0
