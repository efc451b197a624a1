"""Counters for hot paths are exposed like those of `prometheus_client`."""

from __future__ import annotations

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from tidings.observability.hot_counter import HotCounter


@pytest.mark.parametrize("name", ["requests", "requests_total"])
def test_a_counter_is_exposed_as_the_library_exposes_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_client.metrics, "_use_created", False)
    registry, librarys = CollectorRegistry(), CollectorRegistry()
    for counter in (
        HotCounter(name, "Requests, by result", ["result", "number"], registry=registry),
        Counter(name, "Requests, by result", ["result", "number"], registry=librarys),
    ):
        counter.labels("ok", "1").inc()
        counter.labels("ok", "1").inc(2.5)
        counter.labels('b"\\\n', "2")
    assert generate_latest(registry) == generate_latest(librarys)
    assert registry.get_sample_value("requests_total", {"result": "ok", "number": "1"}) == 3.5


def test_a_name_is_registered_once() -> None:
    registry = CollectorRegistry()
    HotCounter("requests", "", ["result"], registry=registry)
    with pytest.raises(ValueError, match="requests"):
        Counter("requests", "", registry=registry)


def test_labels_need_a_value_each() -> None:
    counter = HotCounter("requests", "", ["result", "number"], registry=CollectorRegistry())
    with pytest.raises(ValueError, match="result, number"):
        counter.labels("ok")
