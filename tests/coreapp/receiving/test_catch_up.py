"""Deliveries that waited for an owner of the shard are handled at a pace for some seconds after its opening."""

from __future__ import annotations

import asyncio
import time

import pytest

from coreapp import pace
from coreapp.receiving import catch_up
from tests.coreapp.conftest import Running, World
from tidings.wire import device as frames

NUMBER = "15550110001"
RECEIPTS = [f"receipt-{index:03d}" for index in range(100)]


async def opened(world: World) -> Running:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    return running


def deliver_all(world: World, *, accepted: float = 0.0) -> None:
    """Deliver 100 receipts of one message each, as a mailbox does.

    accepted: when the network accepted them, Unix seconds; 0 for some time long before
    """
    for receipt in RECEIPTS:
        refs, timestamp = [f"message-of-{receipt}"], int(accepted * 1000)
        world.network.deliver(NUMBER, frames.DELIVERED, id=receipt, refs=refs, timestamp=timestamp)


async def acknowledged(world: World) -> float:
    """Wait until all receipts are acknowledged. Returns the seconds since the call."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    await world.network.signals.until(lambda: set(RECEIPTS) <= set(world.network.acknowledged))
    return loop.time() - started


def pace_is(monkeypatch: pytest.MonkeyPatch, rate: float, *, seconds: float) -> None:
    """Set the rate of the catch-up, which does not change, and its duration."""
    monkeypatch.setattr(pace, "GROWTH", 1.0)
    monkeypatch.setattr(catch_up, "LEAST_RATE", rate)
    monkeypatch.setattr(catch_up, "MOST_RATE", rate)
    monkeypatch.setattr(catch_up, "SECONDS", seconds)


async def test_receipts_that_waited_are_handled_at_the_rate(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pace_is(monkeypatch, 100.0, seconds=3600.0)
    running = await opened(world)
    deliver_all(world)
    assert await acknowledged(world) > 0.5
    await running.stopped()


async def test_the_rate_ends_some_seconds_after_the_opening(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # At this rate the receipts would take longer than the time limit of a test.
    pace_is(monkeypatch, 0.01, seconds=0.0)
    running = await opened(world)
    deliver_all(world)
    await acknowledged(world)
    await running.stopped()


async def test_receipts_that_the_network_accepts_after_the_opening_end_the_rate(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At this rate the receipts would take longer than the time limit of a test.
    pace_is(monkeypatch, 0.01, seconds=3600.0)
    running = await opened(world)
    deliver_all(world, accepted=time.time() + 60.0)
    await acknowledged(world)
    await running.stopped()


async def test_few_receipts_do_not_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pace_is(monkeypatch, 0.01, seconds=3600.0)
    running = await opened(world)
    for receipt in RECEIPTS[:5]:
        world.network.deliver(NUMBER, frames.DELIVERED, id=receipt, refs=[f"message-of-{receipt}"])
    await world.network.signals.until(lambda: set(RECEIPTS[:5]) <= set(world.network.acknowledged))
    await running.stopped()


async def test_a_stop_does_not_wait_for_the_rate(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pace_is(monkeypatch, 0.01, seconds=3600.0)
    running = await opened(world)
    deliver_all(world)
    # It arrives last, and is the only one of them that is counted.
    world.network.deliver(NUMBER, frames.MESSAGE, id="message", body=b"unreadable")
    await world.network.signals.until(lambda: running.shard.receiving.pending == 1)
    await running.stopped()
    assert not world.network.acknowledged
