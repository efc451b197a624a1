"""Samples of one process's `/metrics`, and rates and quantiles from two scrapes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from prometheus_client import parser

Labels = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Samples:
    """Values of one scrape."""

    at: float  # monotonic seconds
    values: Mapping[str, Mapping[Labels, float]]  # by name, then by labels

    @classmethod
    def parse(cls, text: str, at: float) -> Samples:
        """Parse Prometheus's text format. Raises `ValueError`."""
        values: dict[str, dict[Labels, float]] = {}
        for family in parser.text_string_to_metric_families(text):
            for sample in family.samples:
                values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
        return cls(at, values)

    def total(self, name: str, **labels: str) -> float | None:
        """Return the sum over all samples with these labels; None without any."""
        found = [value for known, value in self._of(name, labels)]
        return sum(found) if found else None

    def greatest(self, name: str, **labels: str) -> float | None:
        """Return the maximum of all samples with these labels; None without any."""
        return max((value for _, value in self._of(name, labels)), default=None)

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Return the sums of the samples with `labels`, by the value of one other label."""
        found: dict[str, float] = {}
        for known, value in self._of(name, labels):
            key = dict(known).get(label, "")
            found[key] = found.get(key, 0.0) + value
        return found

    def pairs(self, name: str, first: str, second: str) -> list[tuple[str, str]]:
        """Return the values of two labels of each sample."""
        labels = [dict(known) for known, _ in self._of(name, {})]
        return [(each.get(first, ""), each.get(second, "")) for each in labels]

    def _of(self, name: str, labels: Mapping[str, str]) -> Sequence[tuple[Labels, float]]:
        wanted = set(labels.items())
        return [(known, value) for known, value in self.values.get(name, {}).items() if wanted <= set(known)]


def rate(before: Samples | None, after: Samples, name: str, **labels: str) -> float | None:
    """Return a counter's growth per second.

    None without the counter or an earlier scrape, or if the process restarted since.
    """
    now = after.total(name, **labels)
    if before is None or now is None or after.at <= before.at:
        return None
    growth = now - (before.total(name, **labels) or 0.0)
    return growth / (after.at - before.at) if growth >= 0 else None


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """Observations of a histogram between two scrapes."""

    rate: float  # observations per second
    p50: float | None  # seconds; None without observations
    p99: float | None  # seconds; None without observations


def spread(before: Samples | None, after: Samples, name: str, **labels: str) -> Spread | None:
    """Return a histogram's observations between two scrapes.

    None without the histogram or an earlier scrape, or if the process restarted since.
    """
    if before is None or after.at <= before.at:
        return None
    buckets = after.by(f"{name}_bucket", "le", **labels)
    if not buckets:
        return None
    earlier = before.by(f"{name}_bucket", "le", **labels)
    grown = sorted((float(edge), count - earlier.get(edge, 0.0)) for edge, count in buckets.items())
    count = grown[-1][1]
    if count < 0:
        return None
    return Spread(count / (after.at - before.at), quantile(grown, 0.5), quantile(grown, 0.99))


def quantile(buckets: Sequence[tuple[float, float]], part: float) -> float | None:
    """Return a quantile by linear interpolation within a bucket, as Prometheus does; None without observations.

    A quantile above the last finite edge is that edge.

    buckets: upper edge and cumulative count of each bucket, in order.
    part: quantile, from 0 to 1.
    """
    count = buckets[-1][1]
    if count <= 0:
        return None
    wanted, low, below = part * count, 0.0, 0.0
    for edge, upto in buckets:
        if upto >= wanted and upto > below:
            if math.isinf(edge):
                return low
            return low + (edge - low) * (wanted - below) / (upto - below)
        low, below = (low if math.isinf(edge) else edge), upto
    return low
