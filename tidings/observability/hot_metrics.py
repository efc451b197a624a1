"""Metrics for hot paths, exposed like those of `prometheus_client`.

A count takes 0.03 µs instead of 0.18, an observation 0.06 (in a histogram 0.1) instead of 0.27 (0.44): the library
takes a lock and three more calls for each value. These metrics are for one thread: when two count at once, one count
may be lost.
"""

from __future__ import annotations

import abc
import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

Series = TypeVar("Series")


class HotCount:
    """Count of one combination of label values."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Add `amount`, which must not be negative."""
        self.total += amount


class HotSum:
    """Number and sum of the observations of one combination of label values."""

    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.count += 1
        self.total += value


class HotBuckets:
    """Observations of one combination of label values, by bucket."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Create empty buckets.

        bounds: largest value of each bucket, in increasing order, without infinity
        """
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value


class _HotMetric(Collector, abc.ABC, Generic[Series]):
    """Metric with labels.

    name: name of the metric; that of a counter may end in `_total`
    """

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], *, registry: CollectorRegistry = REGISTRY
    ) -> None:
        self.name, self.documentation, self.label_names = name, documentation, tuple(labels)
        self._series: dict[tuple[str, ...], Series] = {}
        registry.register(self)

    def labels(self, *values: str) -> Series:
        """Return the series of these label values, created empty if there is none. Keep it: this is a search.

        Raises `ValueError` for another number of values than of labels.
        """
        if len(values) != len(self.label_names):
            raise ValueError(f"{self.name} has the labels {', '.join(self.label_names)}")
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = self._make()
        return found

    def describe(self) -> Iterable[Metric]:
        return [self._family(())]

    def collect(self) -> Iterable[Metric]:
        # A scrape may run in another thread.
        return [self._family(list(self._series.items()))]

    @abc.abstractmethod
    def _make(self) -> Series: ...

    @abc.abstractmethod
    def _family(self, series: Iterable[tuple[Sequence[str], Series]]) -> Metric: ...


class HotCounter(_HotMetric[HotCount]):
    """Counter."""

    def _make(self) -> HotCount:
        return HotCount()

    def _family(self, series: Iterable[tuple[Sequence[str], HotCount]]) -> Metric:
        family = CounterMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, one in series:
            family.add_metric(values, one.total)
        return family


class HotSummary(_HotMetric[HotSum]):
    """Summary without quantiles."""

    def _make(self) -> HotSum:
        return HotSum()

    def _family(self, series: Iterable[tuple[Sequence[str], HotSum]]) -> Metric:
        family = SummaryMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, one in series:
            family.add_metric(values, one.count, one.total)
        return family


class HotHistogram(_HotMetric[HotBuckets]):
    """Histogram.

    buckets: largest value of each bucket, in increasing order, without infinity
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self._bounds = tuple(buckets)
        self._names = [floatToGoString(bound) for bound in (*buckets, math.inf)]  # type: ignore[no-untyped-call]
        super().__init__(name, documentation, labels, registry=registry)

    def _make(self) -> HotBuckets:
        return HotBuckets(self._bounds)

    def _family(self, series: Iterable[tuple[Sequence[str], HotBuckets]]) -> Metric:
        family = HistogramMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, one in series:
            counts = itertools.accumulate(one.counts)
            family.add_metric(values, list(zip(self._names, counts, strict=True)), one.total)
        return family
