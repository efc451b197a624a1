"""Sampler of the processes of a run: CPU, memory, queues, pauses of the interpreter GC."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import re
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import psutil

from benchmarks.rig import machine
from benchmarks.rig.machine import Shares
from harness import measure
from harness.mariadb import MariaDB
from harness.processes import Usage, usage

# Seconds between samples. A scrape of the metrics costs all processes together about 10 ms.
INTERVAL = 2.0
_DEPTH = re.compile(r'^tidings_queue_depth\{(?:[^}]*,)?queue="([^"]*)".*\} (\S+)$', re.MULTILINE)
_PAUSES = "tidings_gc_pause_seconds"


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """One sample."""

    at: float  # seconds since the start
    rss: Mapping[str, int]  # bytes, by process
    cpu: Mapping[str, float]  # seconds since the start, by process
    queues: Mapping[str, float]  # items, by process and queue


@dataclasses.dataclass(frozen=True, slots=True)
class Pauses:
    """Pauses of a process by the interpreter GC."""

    count: int
    seconds: float
    longest: float  # upper bound of the longest pause, seconds


@dataclasses.dataclass(frozen=True, slots=True)
class Samples:
    """Results of all samples of a run."""

    seconds: float
    cpu: Mapping[str, float]  # seconds, by process
    peak_rss: Mapping[str, int]  # highest memory, bytes, by process
    gc: Mapping[str, Pauses]
    shares: Shares
    load: float  # mean of the one-minute load average
    commits: Mapping[str, float]  # writing transactions by family of tables, as Coreapp and network count them
    statements: int  # COMMITs that the database server counted, including those of reading transactions
    log_bytes: int  # written to the database's log
    points: Sequence[Point]
    metrics: tuple[Mapping[str, str], Mapping[str, str]]  # Prometheus text of each process, before and after

    def deepest(self) -> dict[str, float]:
        """Return the highest number of items of each queue that was not always empty."""
        found: dict[str, float] = {}
        for point in self.points:
            for queue, depth in point.queues.items():
                found[queue] = max(depth, found.get(queue, 0.0))
        return {queue: depth for queue, depth in found.items() if depth}


@dataclasses.dataclass(frozen=True, slots=True)
class _Counters:
    clock: machine.Clock
    cpu: Mapping[str, float]
    metrics: Mapping[str, str]
    database: Mapping[str, int]


class Sampler:
    """Sampler as an asynchronous context manager; `samples` is available after it."""

    def __init__(
        self,
        pids: Callable[[], Mapping[str, int]],
        *,
        metrics: Callable[[], Mapping[str, str]] = dict,
        mariadb: MariaDB | None = None,
        interval: float = INTERVAL,
    ) -> None:
        """Make a sampler.

        pids:     returns the process ids by name; this process is added as `load`
        metrics:  returns the Prometheus text of processes that have one; blocks
        mariadb:  server whose commits are counted; None for none
        interval: seconds between samples
        """
        self._pids = pids
        self._metrics = metrics
        self._mariadb = mariadb
        self._interval = interval
        self._points: list[Point] = []
        self._loads: list[float] = []
        self._over = threading.Event()
        self._used: dict[str, Usage] = {}
        self._samples: Samples | None = None

    @property
    def samples(self) -> Samples:
        assert self._samples is not None, "the run is not over"
        return self._samples

    async def __aenter__(self) -> Self:
        # The cost of this scrape is not counted.
        metrics = await asyncio.to_thread(self._metrics)
        self._before = await asyncio.to_thread(self._count, metrics)
        self._looking = threading.Thread(target=self._sample_until_over, name="sampler", daemon=True)
        self._looking.start()
        return self

    async def __aexit__(self, kind: object, *error: object) -> None:
        self._over.set()
        await asyncio.to_thread(self._looking.join)
        if kind is None:
            self._samples = self._sum_up(await asyncio.to_thread(self._count))

    def _named(self) -> dict[str, int]:
        return {**self._pids(), "load": os.getpid()}

    def _count(self, metrics: Mapping[str, str] | None = None) -> _Counters:
        """Read all counters.

        metrics: present metrics; None to scrape them after the other counters
        """
        clock = machine.read(time.monotonic())
        cpu = {name: used.cpu for name, used in self._usages().items()}
        database = _status(self._mariadb) if self._mariadb else {}
        return _Counters(clock, cpu, dict(self._metrics()) if metrics is None else metrics, database)

    def _usages(self) -> dict[str, Usage]:
        """Return the usage by process; for an ended process, its last one."""
        for name, pid in self._named().items():
            with contextlib.suppress(psutil.NoSuchProcess):
                self._used[name] = usage(pid)
        return dict(self._used)

    def _sample_until_over(self) -> None:
        while not self._over.wait(self._interval):
            # A process that is too busy to respond is sampled the next time.
            with contextlib.suppress(OSError):
                self._points.append(self._take_sample())
                self._loads.append(os.getloadavg()[0])

    def _take_sample(self) -> Point:
        rss = {}
        for name, pid in self._named().items():
            with contextlib.suppress(psutil.NoSuchProcess):
                rss[name] = int(psutil.Process(pid).memory_info().rss)
        cpu = {name: used.cpu - self._before.cpu.get(name, 0.0) for name, used in self._usages().items()}
        queues: dict[str, float] = {}
        for name, text in self._metrics().items():
            for queue, depth in depths(text).items():
                label = f"{role(name)} {queue}"
                queues[label] = queues.get(label, 0.0) + depth
        return Point(time.monotonic() - self._before.clock.at, rss, cpu, queues)

    def _sum_up(self, after: _Counters) -> Samples:
        before = self._before
        ends = (before.metrics, after.metrics)
        return Samples(
            after.clock.at - before.clock.at,
            {name: used - before.cpu.get(name, 0.0) for name, used in after.cpu.items()},
            {name: used.peak_rss for name, used in self._used.items()},
            {name: pauses(before.metrics.get(name, ""), text) for name, text in after.metrics.items()},
            machine.shares(before.clock, after.clock),
            statistics.fmean(self._loads or os.getloadavg()[:1]),
            {family: _commits(after.metrics, family) - _commits(before.metrics, family) for family in _FAMILIES},
            after.database.get("Com_commit", 0) - before.database.get("Com_commit", 0),
            after.database.get("Innodb_os_log_written", 0) - before.database.get("Innodb_os_log_written", 0),
            tuple(self._points),
            ends,
        )


def role(name: str) -> str:
    """Return the role of a process: `coreapp` for `coreapp2`."""
    return name.rstrip("0123456789")


def depths(metrics: str) -> dict[str, float]:
    """Return the items in each queue of a process, summed over all shards, from its metrics."""
    found: dict[str, float] = {}
    for queue, depth in _DEPTH.findall(metrics):
        found[queue] = found.get(queue, 0.0) + float(depth)
    return found


def pauses(before: str, after: str) -> Pauses:
    """Return the pauses between two scrapes of a process."""
    count, seconds = (
        measure.metric(after, f"{_PAUSES}_{what}") - measure.metric(before, f"{_PAUSES}_{what}")
        for what in ("count", "sum")
    )
    longest = 0.0
    for bound in re.findall(rf'^{_PAUSES}_bucket{{.*le="([^"]+)"', after, re.MULTILINE):
        label = f'le="{bound}"'
        below = measure.metric(after, f"{_PAUSES}_bucket", label) - measure.metric(before, f"{_PAUSES}_bucket", label)
        longest = float(bound)
        if below >= count:
            break
    return Pauses(int(count), seconds, longest if count else 0.0)


# Families of tables, and the processes that write them.
_FAMILIES = {"business": "coreapp", "network": "network"}


def _commits(metrics: Mapping[str, str], family: str) -> float:
    return sum(
        measure.metric(text, "tidings_db_commits_total", f'family="{family}"')
        for name, text in metrics.items()
        if role(name) == _FAMILIES[family]
    )


def _status(server: MariaDB) -> dict[str, int]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_commit', 'Innodb_os_log_written')")
        return {str(name): int(value) for name, value in cursor.fetchall()}
