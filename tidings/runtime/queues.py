"""What waits in the queues of this process, for its metrics: read when somebody asks, so that queues only count."""

from __future__ import annotations

import dataclasses
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from prometheus_client import REGISTRY, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

LABELS = ("queue", "shard")


class Reading(NamedTuple):
    """A queue at one moment. depth: items in it; left: items that have left it since it was made; oldest: seconds for
    which the item that has waited longest has done so, 0 for an empty queue."""

    depth: int
    left: int
    oldest: float


class Queue(Protocol):
    """One of several queues of the same name, that come and go while the process runs."""

    @property
    def depth(self) -> int:
        """Items in it."""
        ...

    @property
    def since(self) -> float | None:
        """`time.monotonic()` from which the oldest item has been there at the latest; `None` when it is not known."""
        ...


@dataclasses.dataclass(slots=True)
class Through:
    """What has left the queues of one name, those included that are gone."""

    left: int = 0
    queues: weakref.WeakSet[Queue] = dataclasses.field(default_factory=weakref.WeakSet)

    def read(self) -> Reading:
        """All of them together."""
        queues = list(self.queues)
        begun = [since for queue in queues if (since := queue.since) is not None]
        oldest = max(0.0, time.monotonic() - min(begun)) if begun else 0.0
        return Reading(sum(queue.depth for queue in queues), self.left, oldest)


class QueueMetrics(Collector):
    """The metrics of all queues: how deep each is, how old its oldest item, how many have entered and left it.

    A queue has a name, and where the process has one for each of its shards, the shard's number.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[str, str], Callable[[], Reading]] = {}
        self._through: dict[str, Through] = {}

    def watch(self, queue: str, read: Callable[[], Reading], *, shard: str = "") -> None:
        """Ask `read` about a queue until `forget`."""
        self._read[queue, shard] = read

    def forget(self, queue: str, *, shard: str = "") -> None:
        """The queue is gone, and so are its metrics."""
        self._read.pop((queue, shard), None)

    def join(self, name: str, queue: Queue) -> Through:
        """Count this one among those of its name for as long as it lives; it adds to `left` what has left it."""
        through = self._through.get(name)
        if through is None:
            through = self._through[name] = Through()
            self._read[name, ""] = through.read
        through.queues.add(queue)
        return through

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("tidings_queue_depth", "Items that wait in a queue", labels=LABELS)
        oldest = GaugeMetricFamily(
            "tidings_queue_oldest_seconds", "How long the oldest item of a queue has waited", labels=LABELS
        )
        entered = CounterMetricFamily("tidings_queue_entered", "Items that came into a queue", labels=LABELS)
        left = CounterMetricFamily("tidings_queue_left", "Items that left a queue", labels=LABELS)
        for labels, read in list(self._read.items()):
            now = read()
            depth.add_metric(labels, now.depth)
            oldest.add_metric(labels, now.oldest)
            entered.add_metric(labels, now.left + now.depth)
            left.add_metric(labels, now.left)
        yield from (depth, oldest, entered, left)

    def describe(self) -> Sequence[Metric]:
        """Names only, so that nothing is read when this is registered."""
        return (
            GaugeMetricFamily("tidings_queue_depth", ""),
            GaugeMetricFamily("tidings_queue_oldest_seconds", ""),
            CounterMetricFamily("tidings_queue_entered", ""),
            CounterMetricFamily("tidings_queue_left", ""),
        )


QUEUES = QueueMetrics()
REGISTRY.register(QUEUES)
