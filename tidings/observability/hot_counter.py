"""Counters for hot paths. A count is one addition; one of `prometheus_client` takes a lock and three more calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry


class HotCount:
    """Count of one combination of label values. For one thread: two that count at once may lose a count."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Add `amount`, which must not be negative."""
        self.total += amount


class HotCounter(Collector):
    """Counter with labels, exposed as one of `prometheus_client` is.

    name: name of the metric; `_total` at its end may be left out
    """

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], *, registry: CollectorRegistry = REGISTRY
    ) -> None:
        self._name, self._documentation, self._labels = name, documentation, tuple(labels)
        self._counts: dict[tuple[str, ...], HotCount] = {}
        registry.register(self)

    def labels(self, *values: str) -> HotCount:
        """Return the count of these label values, created at 0 if there is none. Keep it: this is a search."""
        if len(values) != len(self._labels):
            raise ValueError(f"{self._name} has the labels {', '.join(self._labels)}")
        return self._counts.setdefault(values, HotCount())

    def describe(self) -> Iterable[CounterMetricFamily]:
        return [CounterMetricFamily(self._name, self._documentation, labels=self._labels)]

    def collect(self) -> Iterable[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        # A scrape may run in another thread.
        for values, count in list(self._counts.items()):
            family.add_metric(values, count.total)
        return [family]
