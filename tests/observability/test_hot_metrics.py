"""Metrics for hot paths are exposed like those of `prometheus_client`."""

from __future__ import annotations

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, Summary, generate_latest

from tidings.observability.hot_metrics import HotCounter, HotHistogram, HotSummary

LABELS = ["result", "number"]
BUCKETS = (0.001, 0.25, 1, 30)
TEXT = 'a "quoted"\n\\text'


@pytest.fixture(autouse=True)
def without_creation_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_client.metrics, "_use_created", False)


@pytest.mark.parametrize("name", ["requests", "requests_total"])
def test_a_counter_is_exposed_as_the_library_exposes_one(name: str) -> None:
    registry, librarys = CollectorRegistry(), CollectorRegistry()
    for counter in (
        HotCounter(name, TEXT, LABELS, registry=registry),
        Counter(name, TEXT, LABELS, registry=librarys),
    ):
        counter.labels("ok", "1").inc()
        counter.labels("ok", "1").inc(2.5)
        counter.labels(TEXT, "2")
    assert generate_latest(registry) == generate_latest(librarys)
    assert registry.get_sample_value("requests_total", {"result": "ok", "number": "1"}) == 3.5


def test_a_summary_is_exposed_as_the_library_exposes_one() -> None:
    registry, librarys = CollectorRegistry(), CollectorRegistry()
    for summary in (
        HotSummary("took_ms", TEXT, LABELS, registry=registry),
        Summary("took_ms", TEXT, LABELS, registry=librarys),
    ):
        summary.labels("ok", "1").observe(0.5)
        summary.labels("ok", "1").observe(7)
        summary.labels(TEXT, "2")
    assert generate_latest(registry) == generate_latest(librarys)
    assert registry.get_sample_value("took_ms_sum", {"result": "ok", "number": "1"}) == 7.5


def test_a_histogram_is_exposed_as_the_library_exposes_one() -> None:
    registry, librarys = CollectorRegistry(), CollectorRegistry()
    for histogram in (
        HotHistogram("seconds", TEXT, LABELS, buckets=BUCKETS, registry=registry),
        Histogram("seconds", TEXT, LABELS, buckets=BUCKETS, registry=librarys),
    ):
        # Below the first bound, on bounds, between them, and above the last one.
        for value in (0.0, 0.001, 0.002, 0.25, 1, 29.5, 30, 31):
            histogram.labels("ok", "1").observe(value)
        histogram.labels(TEXT, "2")
    assert generate_latest(registry) == generate_latest(librarys)
    assert registry.get_sample_value("seconds_bucket", {"result": "ok", "number": "1", "le": "0.25"}) == 4


def test_a_name_is_registered_once() -> None:
    registry = CollectorRegistry()
    HotCounter("requests", "", ["result"], registry=registry)
    with pytest.raises(ValueError, match="requests"):
        Counter("requests", "", registry=registry)


def test_labels_need_a_value_each() -> None:
    counter = HotCounter("requests", "", LABELS, registry=CollectorRegistry())
    with pytest.raises(ValueError, match="result, number"):
        counter.labels("ok")
