"""Process metrics common to all processes: resource usage, event-loop lag, garbage collection pauses, disk space."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import gc
import logging
import math
import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from prometheus_client import PROCESS_COLLECTOR, REGISTRY, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tidings.aio import service

log = logging.getLogger(__name__)

LAG = Histogram(
    "tidings_event_loop_lag_seconds",
    "Delay with which the event loop wakes up a task, sampled a few times a second",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
FREE = Gauge("tidings_disk_free_bytes", "Free bytes on the disk of a directory of this process", ["directory"])
SIZE = Gauge("tidings_disk_size_bytes", "Size of the disk of a directory of this process", ["directory"])

# Seconds between two measurements of the event loop, and of the disks.
LAG_INTERVAL, DISK_INTERVAL = 0.25, 10.0

_PROC = Path("/proc")

# Histogram buckets for garbage collection pauses, seconds.
PAUSES = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


class InterpreterGcMetrics(Collector):
    """Garbage collection pauses of this process, by the oldest generation that each collection scanned.

    A collection only updates counters, in under half a microsecond; the histogram is built at a scrape.
    """

    def __init__(self) -> None:
        self._begun = 0.0
        self._counts = [[0] * (len(PAUSES) + 1) for _ in gc.get_threshold()]
        self._sums = [0.0 for _ in gc.get_threshold()]

    def noticed(self, phase: str, info: Mapping[str, int]) -> None:
        """Record the start or the stop of a collection; for `gc.callbacks`."""
        if phase == "start":
            self._begun = time.perf_counter()
            return
        took = time.perf_counter() - self._begun
        generation = info["generation"]
        self._counts[generation][bisect.bisect_left(PAUSES, took)] += 1
        self._sums[generation] += took

    def collect(self) -> Iterator[Metric]:
        found = HistogramMetricFamily(
            "tidings_gc_pause_seconds",
            "Duration of garbage collections, which pause the process",
            labels=["generation"],
        )
        for generation, (counts, seconds) in enumerate(zip(self._counts, self._sums, strict=True)):
            below, buckets = 0, []
            for bound, count in zip((*map(str, PAUSES), "+Inf"), counts, strict=True):
                below += count
                buckets.append((bound, below))
            found.add_metric([str(generation)], buckets, seconds)
        yield found

    def describe(self) -> Sequence[Metric]:
        return (HistogramMetricFamily("tidings_gc_pause_seconds", "", labels=["generation"]),)


COLLECTIONS = InterpreterGcMetrics()
REGISTRY.register(COLLECTIONS)


class ProcessVitals(Collector):
    """Standard process metrics (`process_…`), replacing those of the client library.

    The library lists every descriptor to count them: with 15,000 connections that stops the process for 22 ms. A value
    that cannot be read is left out, so that a process without free descriptors still reports the others.
    """

    def __init__(self) -> None:
        """Read constant values. Raises `OSError` on systems without these files."""
        self._page = resource.getpagesize()
        self._tick = 1.0 / os.sysconf("SC_CLK_TCK")
        booted = next(line for line in (_PROC / "stat").read_text().splitlines() if line.startswith("btime "))
        self._started = int(booted.split()[1]) + int(self._stat()[19]) * self._tick

    def _stat(self) -> Sequence[bytes]:
        """Return the fields behind the process name, which may contain spaces (proc(5))."""
        return (_PROC / "self/stat").read_bytes().rpartition(b")")[2].split()

    def _descriptors(self) -> int:
        """Return the number of descriptors: since Linux 6.2 the directory's size, which was 0 before (proc(5))."""
        descriptors = _PROC / "self/fd"
        return descriptors.stat().st_size or len(os.listdir(descriptors))

    def collect(self) -> Iterator[Metric]:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        bound = math.inf if most == resource.RLIM_INFINITY else most
        with contextlib.suppress(OSError):
            yield GaugeMetricFamily("process_max_fds", "Descriptors that may be open", bound)
            yield GaugeMetricFamily("process_open_fds", "Open file descriptors", self._descriptors())
            stat = self._stat()
            cpu = (int(stat[11]) + int(stat[12])) * self._tick
            resident = int(stat[21]) * self._page
            yield CounterMetricFamily("process_cpu_seconds_total", "User and system CPU time spent", cpu)
            yield GaugeMetricFamily("process_virtual_memory_bytes", "Size of virtual memory", int(stat[20]))
            yield GaugeMetricFamily("process_resident_memory_bytes", "Size of resident memory", resident)
            yield GaugeMetricFamily("process_start_time_seconds", "Start of the process, Unix time", self._started)


def _show_process() -> None:
    """Replace the library's collector. Without /proc the library shows nothing either."""
    with contextlib.suppress(OSError):
        process = ProcessVitals()
        REGISTRY.unregister(PROCESS_COLLECTOR)
        REGISTRY.register(process)


_show_process()


class Vitals:
    """Service that measures the event loop and the disks, and observes the garbage collector while it runs."""

    name = "vitals"

    def __init__(self, directories: Mapping[str, Path]) -> None:
        """directories: directories that the process writes to, by their name in the metrics."""
        self._directories = directories

    async def run(self, stop: asyncio.Event) -> None:
        looking = asyncio.create_task(self._measure_disks(), name="disks")
        loop = asyncio.get_running_loop()
        gc.callbacks.append(COLLECTIONS.noticed)
        try:
            while not stop.is_set():
                due = loop.time() + LAG_INTERVAL
                if not await service.wait_for(stop, LAG_INTERVAL):
                    LAG.observe(max(0.0, loop.time() - due))
        finally:
            gc.callbacks.remove(COLLECTIONS.noticed)
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            for name in self._directories:
                _remove(name)

    async def _measure_disks(self) -> None:
        while True:
            for name, directory in self._directories.items():
                # In a thread, as a remote disk that is unreachable does not respond.
                try:
                    found = await asyncio.to_thread(os.statvfs, directory)
                except OSError as error:
                    log.debug("disk.unknown", extra={"directory": str(directory), "error": repr(error)})
                    _remove(name)
                    continue
                FREE.labels(name).set(found.f_bavail * found.f_frsize)
                SIZE.labels(name).set(found.f_blocks * found.f_frsize)
            await asyncio.sleep(DISK_INTERVAL)


def _remove(name: str) -> None:
    FREE.remove(name)
    SIZE.remove(name)
