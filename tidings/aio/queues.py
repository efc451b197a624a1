"""Metrics of the queues of this process; they are read at a scrape, so queues only keep counts."""

from __future__ import annotations

import dataclasses
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

LABELS = ("queue", "shard", "number")


class QueueReading(NamedTuple):
    """State of a queue at one moment."""

    # Items in the queue.
    depth: int
    # Items that have left it since it was created.
    left: int
    # Age of the oldest item, seconds; 0 for an empty queue.
    oldest: float


class Queue(Protocol):
    """One of several queues with the same name, which come and go while the process runs."""

    @property
    def depth(self) -> int:
        """Items in the queue."""

    @property
    def since(self) -> float | None:
        """Latest possible arrival of the oldest item (`time.monotonic()`); `None` when it is not known."""


@dataclasses.dataclass(slots=True)
class Throughput:
    """Throughput of all queues of one name."""

    # Items that have left any of them, including queues that no longer exist.
    left: int = 0
    queues: weakref.WeakSet[Queue] = dataclasses.field(default_factory=weakref.WeakSet)

    def read(self) -> QueueReading:
        """Return the sum of all of them."""
        queues = list(self.queues)
        begun = [since for queue in queues if (since := queue.since) is not None]
        oldest = max(0.0, time.monotonic() - min(begun)) if begun else 0.0
        return QueueReading(sum(queue.depth for queue in queues), self.left, oldest)


class QueueMetrics(Collector):
    """Metrics of all queues: depth, age of the oldest item, and items that entered and left.

    A queue is identified by its name and, where the process has one per shard, by the shard and its business number.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[str, str, str], Callable[[], QueueReading]] = {}
        self._throughput: dict[str, Throughput] = {}

    def watch(self, queue: str, read: Callable[[], QueueReading], *, shard: str = "", number: str = "") -> None:
        """Read a queue with `read` at each scrape, until `remove`."""
        self._read[queue, shard, number] = read

    def remove(self, queue: str, *, shard: str = "", number: str = "") -> None:
        """Remove a queue and its metrics."""
        self._read.pop((queue, shard, number), None)

    def join(self, name: str, queue: Queue) -> Throughput:
        """Include a queue in the metrics of its name while it exists. It must add the items that leave it to
        `Throughput.left`."""
        throughput = self._throughput.get(name)
        if throughput is None:
            throughput = self._throughput[name] = Throughput()
            self._read[name, "", ""] = throughput.read
        throughput.queues.add(queue)
        return throughput

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("tidings_queue_depth", "Items that wait in a queue", labels=LABELS)
        oldest = GaugeMetricFamily(
            "tidings_queue_oldest_seconds", "Seconds that the oldest item of a queue has waited", labels=LABELS
        )
        entered = CounterMetricFamily("tidings_queue_entered", "Items added to a queue", labels=LABELS)
        left = CounterMetricFamily("tidings_queue_left", "Items removed from a queue", labels=LABELS)
        for labels, read in list(self._read.items()):
            now = read()
            depth.add_metric(labels, now.depth)
            oldest.add_metric(labels, now.oldest)
            entered.add_metric(labels, now.left + now.depth)
            left.add_metric(labels, now.left)
        yield from (depth, oldest, entered, left)

    def describe(self) -> Sequence[Metric]:
        """Return the names only, so that registration reads nothing."""
        return (
            GaugeMetricFamily("tidings_queue_depth", ""),
            GaugeMetricFamily("tidings_queue_oldest_seconds", ""),
            CounterMetricFamily("tidings_queue_entered", ""),
            CounterMetricFamily("tidings_queue_left", ""),
        )


QUEUES = QueueMetrics()
REGISTRY.register(QUEUES)
