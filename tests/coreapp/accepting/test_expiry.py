"""A message expires with its `ttl`: in the queue it fails with 410, and its envelope carries the remaining
seconds."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.signals import soon
from tests.manual_clock import ManualClock
from tidings.storage.business import shards
from tidings.wire import core

KNOWN, NEW = "15550110001", "15550110002"


async def begin(world: World, clock: ManualClock) -> Running:
    """Start a Coreapp that has a session with `KNOWN`."""
    world.add_phones(KNOWN, NEW)
    running = await world.start(clock=clock)
    await world.connected(running)
    await running.client.check(KNOWN, NEW)
    await running.client.send(KNOWN, "the first")
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    return running


async def send(running: Running, ttl: int, to: str = KNOWN) -> str:
    content = b'{"type":"text","text":{"body":"hello"}}'
    response: Any = await running.client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, to, "text", content, "request", ttl=ttl)
    )
    assert isinstance(response, core.Accepted), response
    return response.id


async def test_an_envelope_carries_its_time_to_live(world: World) -> None:
    running = await begin(world, ManualClock())
    await send(running, 3_600)
    await send(running, 0)
    await world.network.signals.until(lambda: len(world.network.sends) == 3)
    assert [frame.ttl for frame in world.network.sends] == [0, 3_600, 0]


async def test_the_time_to_live_starts_at_the_acceptance_after_the_clock_was_set_back(world: World) -> None:
    clock = ManualClock()
    running = await begin(world, clock)
    clock.advance(3_600)
    await send(running, 0)
    # The clock was wrong by an hour.
    clock.advance(-3_600)
    await send(running, 60)
    await world.network.signals.until(lambda: len(world.network.sends) == 3)
    assert world.network.sends[-1].ttl == 60


@pytest.mark.parametrize("to", [KNOWN, NEW])
async def test_a_message_not_sent_within_its_ttl_fails_with_410(world: World, to: str) -> None:
    clock = ManualClock()
    running = await begin(world, clock)
    world.network.away()
    await soon(lambda: not running.shard.link.connected)
    expires, later, stays = [await send(running, ttl, to) for ttl in (60, 600, 0)]
    clock.advance(59)
    assert running.shard.accepting.jobs.expiry.run_once() == 0
    clock.advance(2)
    await world.sink.signals.until(lambda: world.sink.statuses_of(expires) == ["failed"])
    [failed] = [post.body["statuses"][0] for post in world.sink.posts if post.label[1] == "failed"]
    assert [error["code"] for error in failed["errors"]] == [410]
    await world.network.listen()
    await world.sink.signals.until(lambda: world.sink.statuses_of(later) == ["sent"])
    await world.sink.signals.until(lambda: world.sink.statuses_of(stays) == ["sent"])
    assert expires not in world.network.ids_sent()
    [ttl] = {frame.ttl for frame in world.network.sends if frame.id == later}
    assert 530 <= ttl < 540


async def test_a_message_expires_after_its_shard_changes_owner(world: World) -> None:
    clock = ManualClock()
    running = await begin(world, clock)
    world.network.away()
    await soon(lambda: not running.shard.link.connected)
    expires = await send(running, 60, NEW)
    await running.killed()
    await world.start(node="again", clock=clock)
    clock.advance(61)
    await world.sink.signals.until(lambda: world.sink.statuses_of(expires) == ["failed"])


async def test_a_message_being_committed_during_a_pass_expires_in_time(world: World) -> None:
    clock = ManualClock()
    running = await begin(world, clock)
    world.network.away()
    await soon(lambda: not running.shard.link.connected)
    expiry, tracker = running.shard.accepting.jobs.expiry, running.shard.accepting.purge.tracker
    first = await send(running, 60)
    async with running.database.transaction() as connection:
        # The commit of the second message waits for this transaction.
        await connection.execute(shards.table.update().values(heartbeat_at=shards.table.c.heartbeat_at))
        sending = asyncio.create_task(send(running, 120))
        await soon(lambda: running.shard.context.count() == 2)
        clock.advance(61)
        expiry.run_once()
        assert not tracker.is_unsent(first)
    second = await sending
    clock.advance(60)
    expiry.run_once()
    assert not tracker.is_unsent(second)


async def test_a_clock_that_jumps_ahead_ends_no_time_to_live(world: World) -> None:
    clock = ManualClock()
    running = await begin(world, clock)
    world.network.away()
    await soon(lambda: not running.shard.link.connected)
    stays = await send(running, 600)
    clock.jump(86_400)
    after = await send(running, 60)
    assert running.shard.accepting.jobs.expiry.run_once() == 0
    clock.advance(61)
    await world.sink.signals.until(lambda: world.sink.statuses_of(after) == ["failed"])
    await world.network.listen()
    await world.sink.signals.until(lambda: world.sink.statuses_of(stays) == ["sent"])
    assert [frame.ttl for frame in world.network.sends if frame.id == stays] == [539]


async def test_a_clock_that_is_ahead_after_a_restart_ends_no_time_to_live(world: World) -> None:
    # The clock of the database is right.
    clock = ManualClock(time.time())
    running = await begin(world, clock)
    world.network.away()
    await soon(lambda: not running.shard.link.connected)
    stays = await send(running, 600, NEW)
    await running.killed()
    clock.jump(86_400)
    running = await world.start(node="again", clock=clock)
    assert running.shard.accepting.jobs.expiry.run_once() == 0
    await world.network.listen()
    await world.sink.signals.until(lambda: world.sink.statuses_of(stays) == ["sent"])
    [ttl] = {frame.ttl for frame in world.network.sends if frame.id == stays}
    assert 300 < ttl <= 600
