"""Jobs of a dead owner are sent at a limited rate. New messages to other recipients overtake them."""

from __future__ import annotations

import dataclasses

import pytest

from coreapp import pace
from coreapp.sending import backlog
from tests.coreapp.conftest import World
from tests.coreapp.scripted_network import HOLD
from tidings.storage.business import jobs
from tidings.wire import core

NUMBER, OTHER = "15550110001", "15550110002"
JOBS = 400


async def test_new_messages_overtake_the_backlog_and_messages_to_one_recipient_stay_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add_phones(NUMBER, OTHER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER, OTHER)
    world.network.policy = lambda send: HOLD
    for number in (NUMBER, OTHER):
        assert isinstance(await running.client.send(number), core.Accepted)
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    await running.killed()
    async with world.database.transaction() as connection:
        left = await jobs.list_jobs(connection, 0)
        job = next(job for job in left if job.peer == NUMBER)
        await jobs.finish(connection, [job.id for job in left])
        backlog_jobs = [dataclasses.replace(job, id=f"job-{index:04d}") for index in range(JOBS)]
        await jobs.enqueue(connection, backlog_jobs)
    world.network.sends.clear()
    world.network.connections_of_sends.clear()
    world.network.policy = lambda send: None
    # So slow that most jobs wait when the test sends its messages.
    monkeypatch.setattr(pace, "GROWTH", 1.0)
    monkeypatch.setattr(backlog, "FIRST_RATE", 200.0)

    again = await world.start(node="second")
    await world.connected(again)
    behind = (await again.client.send(NUMBER, "behind")).id
    overtaking = (await again.client.send(OTHER, "overtakes")).id
    await world.network.signals.until(lambda: behind in world.network.ids_sent())
    sent = world.network.ids_sent()
    assert [each for each in sent if each != overtaking] == [*(job.id for job in backlog_jobs), behind]
    assert sent.index(overtaking) < JOBS
    await again.stopped()


async def test_a_backlog_waits_for_the_network_and_goes_on_after_a_reconnect(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    world.network.policy = lambda send: HOLD
    await running.client.send(NUMBER)
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    await running.killed()
    async with world.database.transaction() as connection:
        (job,) = await jobs.list_jobs(connection, 0)
        left = [dataclasses.replace(job, id=f"job-{index:04d}") for index in range(200)]
        await jobs.enqueue(connection, left)
    again = await world.start(node="second")
    await world.connected(again)
    await world.network.signals.until(lambda: "job-0010" in world.network.ids_sent())
    world.network.drop()
    await world.network.signals.until(lambda: "job-0199" in world.network.ids_sent())
    assert again.shard.sending.transmitter.waiting == 201
    await again.stopped()
