"""Gauges of a shard's queues, while the shard is ours and afterwards."""

from __future__ import annotations

import asyncio

from prometheus_client import REGISTRY

from tests.coreapp.conftest import World
from tests.coreapp.signals import soon
from tidings.wire import core

NUMBER = "15550110001"
SHARD = {"shard": "0", "number": "15550000000"}


def of_queue(name: str, queue: str) -> float | None:
    return REGISTRY.get_sample_value(f"tidings_queue_{name}", {"queue": queue, **SHARD})


async def test_queue_metrics_of_a_shard_are_reported_until_it_closes(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    world.network.policy = lambda send: "hold"
    for number, text in enumerate(("one", "two"), 1):
        assert isinstance(await running.client.send(NUMBER, text), core.Accepted)
        await soon(lambda number=number: len(world.network.sends) == number)
    for queue in ("jobs", "transmission"):
        assert of_queue("depth", queue) == 2
        assert of_queue("entered_total", queue) == 2
        assert of_queue("left_total", queue) == 0
        assert (of_queue("oldest_seconds", queue) or 0) > 0
    assert of_queue("left_total", "encryption") == 1, "the second found its session in memory"
    assert of_queue("limit", "jobs") == running.shard.context.settings.job_queue_limit
    assert REGISTRY.get_sample_value("tidings_job_queue_size", SHARD) == 2
    assert REGISTRY.get_sample_value("tidings_messages_held_back", SHARD) == 0
    async with asyncio.timeout(20):
        await running.stopped()
    assert of_queue("depth", "jobs") is None
    assert REGISTRY.get_sample_value("tidings_job_queue_size", SHARD) is None
    assert of_queue("limit", "jobs") is None
