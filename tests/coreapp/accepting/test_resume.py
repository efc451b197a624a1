"""Resumption of the jobs that a dead owner left."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from coreapp.accepting.job_queue import JobQueue
from tests.coreapp.conftest import World
from tests.coreapp.scripted_network import HOLD
from tests.manual_clock import ManualClock
from tidings.storage.business import jobs
from tidings.storage.business.jobs import Job

NUMBER = "15550110001"
JOBS = 1000


async def test_while_the_jobs_of_a_dead_owner_are_resumed_the_event_loop_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    world.network.policy = lambda send: HOLD
    message = (await running.client.send(NUMBER)).id
    await world.network.signals.until(lambda: message in world.network.ids_sent())
    await running.killed()
    async with world.database.transaction() as connection:
        (job,) = await jobs.list_jobs(connection, 0)
        left = [dataclasses.replace(job, id=f"job-{index:04d}") for index in range(JOBS)]
        await jobs.enqueue(connection, left)

    iterations: list[int] = []
    resume = JobQueue.resume

    async def counting(queue: JobQueue, left: Sequence[Job]) -> None:
        resuming = asyncio.ensure_future(resume(queue, left))
        iterations.append(0)
        while not resuming.done():
            iterations[-1] += 1
            await asyncio.sleep(0)
        await resuming

    monkeypatch.setattr(JobQueue, "resume", counting)
    again = await world.start(node="second")
    # At most 50 jobs per iteration.
    assert iterations[-1] >= JOBS / 50
    await world.connected(again)
    await world.network.signals.until(lambda: {job.id for job in left} <= set(world.network.ids_sent()))
    await again.stopped()


async def test_messages_keep_their_order_after_an_owner_whose_clock_is_behind(world: World) -> None:
    world.add_phones(NUMBER)
    world.network.policy = lambda send: HOLD
    accepted: list[str] = []
    for behind, node in enumerate(("first", "second")):
        running = await world.start(node=node, clock=ManualClock(1_700_000_000.0 - 10 * behind))
        await world.connected(running)
        accepted.append((await running.client.send(NUMBER)).id)
        await running.killed()
    before = len(world.network.sends)
    await world.start(node="third")
    await world.network.signals.until(lambda: set(accepted) <= set(world.network.ids_sent()[before:]))
    assert world.network.ids_sent()[before:] == accepted
