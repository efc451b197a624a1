"""Samples of one process's `/metrics`, and what two readings of it say together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from prometheus_client import parser

Labels = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Samples:
    """The values of one reading. at: monotonic seconds. Of a metric that is not there every answer is `None`."""

    at: float
    values: Mapping[str, Mapping[Labels, float]]

    @classmethod
    def parse(cls, text: str, at: float) -> Samples:
        """From Prometheus's text format. Raises `ValueError`."""
        values: dict[str, dict[Labels, float]] = {}
        for family in parser.text_string_to_metric_families(text):
            for sample in family.samples:
                values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
        return cls(at, values)

    def total(self, name: str, **labels: str) -> float | None:
        """The sum over all samples with these labels."""
        found = [value for known, value in self._of(name, labels)]
        return sum(found) if found else None

    def greatest(self, name: str, **labels: str) -> float | None:
        """The greatest of them."""
        return max((value for _, value in self._of(name, labels)), default=None)

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Sums by the value of one label."""
        found: dict[str, float] = {}
        for known, value in self._of(name, labels):
            key = dict(known).get(label, "")
            found[key] = found.get(key, 0.0) + value
        return found

    def _of(self, name: str, labels: Mapping[str, str]) -> Sequence[tuple[Labels, float]]:
        wanted = set(labels.items())
        return [(known, value) for known, value in self.values.get(name, {}).items() if wanted <= set(known)]


def rate(before: Samples | None, after: Samples, name: str, **labels: str) -> float | None:
    """A counter's growth a second; `None` while there is only one reading, or the process was started again since."""
    now = after.total(name, **labels)
    if before is None or now is None or after.at <= before.at:
        return None
    growth = now - (before.total(name, **labels) or 0.0)
    return growth / (after.at - before.at) if growth >= 0 else None


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """Of what a histogram observed between two readings. p50, p99: seconds, `None` where nothing was observed."""

    rate: float
    p50: float | None
    p99: float | None


def spread(before: Samples | None, after: Samples, name: str, **labels: str) -> Spread | None:
    """`None` for a histogram that is not there, and while there is only one reading."""
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
    """By cumulative counts up to each edge, as Prometheus does: evenly within a bucket, and the last finite edge for
    what lies beyond it."""
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
