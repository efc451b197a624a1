"""A refused message is not stored, and its recipient gets later messages, when too many recipients lack a session."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from coreapp.journal.change import Change
from coreapp.sending import encryption
from tests.coreapp.conftest import BUSINESS, Running, World
from tidings.aio.batcher import Batcher
from tidings.storage.business import messages
from tidings.wire import core
from tidings.wire import device as frames

NUMBERS = [f"1555011000{n}" for n in range(1, 7)]
LIMIT = 3


@pytest.fixture
def small_lane(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Function that limits the lane of shards opened later, unless `Encryption` sets its limit itself.

    By default it has 100,000, which a job queue of more messages reaches while the network does not respond.
    """
    limited = functools.partial(Batcher, max_pending=LIMIT)
    return lambda: monkeypatch.setattr(encryption, "Batcher", limited)


async def full(world: World) -> tuple[Running, list[Any], asyncio.Event]:
    """Send to more recipients without a session than the lane holds. The network responds once the event is set."""
    world.add_phones(*NUMBERS)
    running = await world.start()
    await world.connected(running)
    await running.client.check(*NUMBERS)
    gate = world.network.gates[frames.Fetch] = asyncio.Event()
    responses = []
    for count, number in enumerate(NUMBERS, 1):
        responses.append(await running.client.send(number))
        if count <= 2:
            await world.network.signals.until(lambda count=count: len(world.network.fetches) == count)
    return running, responses, gate


async def test_a_message_refused_because_of_a_full_session_lane_is_not_stored(
    world: World, small_lane: Callable[[], None]
) -> None:
    small_lane()
    running, responses, _ = await full(world)
    await running.shard.context.journal.write(Change(BUSINESS))
    async with world.database.reading() as connection:
        stored = set((await connection.execute(sa.select(messages.table.c.peer))).scalars())
    accepted = {
        number for number, response in zip(NUMBERS, responses, strict=True) if isinstance(response, core.Accepted)
    }
    assert stored == accepted, responses


async def test_a_recipient_gets_messages_after_the_session_lane_was_full(
    world: World, small_lane: Callable[[], None]
) -> None:
    small_lane()
    running, _, gate = await full(world)
    gate.set()
    last = NUMBERS[-1]
    assert isinstance(await running.client.send(last), core.Accepted)
    await world.network.signals.until(lambda: last in {send.to for send in world.network.sends}, timeout=10)


async def test_a_shard_with_more_waiting_recipients_than_the_session_lane_holds_is_opened(
    world: World, small_lane: Callable[[], None]
) -> None:
    running, _, gate = await full(world)
    await running.killed()
    small_lane()
    await world.start(node="again")
    gate.set()
    await world.network.signals.until(lambda: {send.to for send in world.network.sends} == set(NUMBERS), timeout=20)
