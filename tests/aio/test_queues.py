"""Queue metrics: read from the queues at each scrape, and correct across queues that are created and removed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from tidings.aio import queues
from tidings.aio.batcher import Batcher
from tidings.aio.queues import QUEUES, QueueMetrics, QueueReading


def values(metrics: QueueMetrics, queue: str, shard: str = "", number: str = "") -> tuple[float | None, ...]:
    """Return depth, age of the oldest entry in seconds, number of entries added and removed."""
    registry = CollectorRegistry()
    registry.register(metrics)
    names = ("depth", "oldest_seconds", "entered_total", "left_total")
    labels = {"queue": queue, "shard": shard, "number": number}
    return tuple(registry.get_sample_value(f"tidings_queue_{name}", labels) for name in names)


def test_a_watched_queue_is_read_at_each_scrape_until_it_is_removed() -> None:
    metrics = QueueMetrics()
    reading = QueueReading(0, 0, 0.0)
    metrics.watch("jobs", lambda: reading, shard="3", number="15550000001")
    assert values(metrics, "jobs", "3", "15550000001") == (0, 0, 0, 0)
    reading = QueueReading(depth=5, left=2, oldest=1.5)
    assert values(metrics, "jobs", "3", "15550000001") == (5, 1.5, 7, 2)
    metrics.remove("jobs", shard="3", number="15550000001")
    assert values(metrics, "jobs", "3", "15550000001") == (None, None, None, None)


async def test_a_batcher_reports_pending_and_in_flight_items_and_their_age() -> None:
    gate, flushing = asyncio.Event(), asyncio.Event()

    async def flush(items: Sequence[int]) -> Sequence[int]:
        flushing.set()
        await gate.wait()
        return items

    batcher: Batcher[int, int] = Batcher("queues-test", flush, max_size=2)
    results = [batcher.put(item) for item in range(5)]
    assert values(QUEUES, "queues-test") == (5, 0, 5, 0)
    await flushing.wait()
    depth, oldest, entered, left = values(QUEUES, "queues-test")
    assert (depth, entered, left) == (5, 5, 0)
    assert oldest is not None
    assert oldest > 0
    gate.set()
    await asyncio.gather(*results)
    await batcher.close()
    assert values(QUEUES, "queues-test") == (0, 0, 5, 5)


async def test_items_of_a_deleted_batcher_stay_counted() -> None:
    async def flush(items: Sequence[int]) -> Sequence[int]:
        return items

    async def use(count: int) -> None:
        batcher: Batcher[int, int] = Batcher("queues-gone", flush)
        await asyncio.gather(*(batcher.submit(item) for item in range(count)))
        await batcher.close()

    await use(3)
    gc.collect()
    await use(4)
    assert values(QUEUES, "queues-gone") == (0, 0, 7, 7)


def test_the_metric_names_are_known_before_the_first_scrape() -> None:
    assert {family.name for family in QUEUES.describe()} == {family.name for family in QUEUES.collect()}
    assert queues.LABELS == ("queue", "shard", "number")
