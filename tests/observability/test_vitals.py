"""Lateness of the event loop, and free space on the disks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import time
from pathlib import Path

import pytest
from prometheus_client import PROCESS_COLLECTOR, REGISTRY

from harness import metrics, polling
from tidings.observability import vitals
from tidings.observability.vitals import InterpreterGcMetrics, ProcessVitals, Vitals


def above(seconds: str) -> float:
    """Return how many measurements of the loop found more than this bound of the histogram."""
    return metrics.value("tidings_event_loop_lag_seconds_count") - metrics.value(
        "tidings_event_loop_lag_seconds_bucket", le=seconds
    )


async def test_a_blocked_event_loop_is_measured_as_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vitals, "LAG_INTERVAL", 0.01)
    stop = asyncio.Event()
    before = above("0.1")
    running = asyncio.create_task(Vitals({}).run(stop))
    await asyncio.sleep(0)
    time.sleep(0.2)  # noqa: ASYNC251 (that is what is to be seen)
    await polling.until(lambda: above("0.1") > before, pause=0.001)
    stop.set()
    await running
    assert above("0.1") == before + 1


async def test_free_disk_space_is_reported_while_the_service_runs(tmp_path: Path) -> None:
    stop = asyncio.Event()
    gone = tmp_path / "gone"
    running = asyncio.create_task(Vitals({"test": tmp_path, "gone": gone}).run(stop))
    await polling.until(lambda: bool(metrics.value("tidings_disk_size_bytes", directory="test")), pause=0.001)
    free = metrics.value("tidings_disk_free_bytes", directory="test")
    assert 0 < free <= metrics.value("tidings_disk_size_bytes", directory="test")
    stop.set()
    await running
    assert not metrics.value("tidings_disk_size_bytes", directory="test")


def pauses(generation: str) -> float:
    return metrics.value("tidings_gc_pause_seconds_count", generation=generation)


async def test_each_interpreter_gc_run_is_counted_while_the_service_runs() -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(Vitals({}).run(stop))
    await asyncio.sleep(0)
    before, spent = pauses("2"), metrics.value("tidings_gc_pause_seconds_sum", generation="2")
    gc.collect()
    assert pauses("2") == before + 1
    assert metrics.value("tidings_gc_pause_seconds_sum", generation="2") > spent
    stop.set()
    await running
    gc.collect()
    assert pauses("2") == before + 1


def test_a_gc_pause_counts_in_every_histogram_bucket_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([10.0, 10.003])
    monkeypatch.setattr(time, "perf_counter", lambda: next(moments))
    collections = InterpreterGcMetrics()
    collections.noticed("start", {"generation": 1})
    collections.noticed("stop", {"generation": 1})
    (family,) = collections.collect()
    found = {(s.labels["generation"], s.labels["le"]): s.value for s in family.samples if "le" in s.labels}
    assert [found["1", bound] for bound in ("0.0001", "0.0025", "0.005", "1.0", "+Inf")] == [0, 0, 1, 1, 1]
    assert found["0", "+Inf"] == 0
    assert next(s.value for s in family.samples if s.name.endswith("_sum") and s.labels["generation"] == "1") > 0.0029


def test_process_metrics_match_those_of_the_library(tmp_path: Path) -> None:
    with contextlib.ExitStack() as files:
        for index in range(50):
            files.enter_context((tmp_path / str(index)).open("w"))
        ours = {sample.name: sample.value for family in ProcessVitals().collect() for sample in family.samples}
        theirs = {sample.name: sample.value for family in PROCESS_COLLECTOR.collect() for sample in family.samples}
    # The library opens the directory in order to list it. We do so only where the system does not count descriptors.
    assert theirs["process_open_fds"] - ours["process_open_fds"] in (0, 1)
    assert ours["process_max_fds"] == theirs["process_max_fds"]
    assert ours["process_start_time_seconds"] == theirs["process_start_time_seconds"]
    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_virtual_memory_bytes"):
        assert ours[name] == pytest.approx(theirs[name], rel=0.1)
    assert ours.keys() == theirs.keys()


def test_a_process_without_free_descriptors_still_reports_its_limit(tmp_path: Path) -> None:
    process = ProcessVitals()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), hard))
        with contextlib.suppress(OSError):
            while True:
                files.enter_context((tmp_path / "file").open("w"))
        shown = {family.name for family in process.collect()}
    assert "process_max_fds" in shown
    assert "process_resident_memory_bytes" not in shown


def test_only_one_collector_reports_process_metrics() -> None:
    shown = [family.name for family in REGISTRY.collect() if family.name.startswith("process_")]
    assert len(shown) == len(set(shown)) == 6
