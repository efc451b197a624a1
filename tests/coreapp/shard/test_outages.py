"""Coreapp whose database hangs: no process ends, nothing fails, callers get a response in time, and work resumes after
it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from harness import lateness
from harness.mariadb import MariaDB
from tests.coreapp.conftest import World
from tests.coreapp.signals import soon
from tidings.wire import core

NUMBER = "15550110001"


@pytest.fixture
def database_engine() -> str:
    return "mariadb"


@pytest.fixture
def hanging(mariadb: MariaDB) -> Iterator[MariaDB]:
    """Database that the test pauses. It resumes when the test ends."""
    yield mariadb
    mariadb.resume()


async def test_while_the_database_hangs_new_messages_are_refused_and_pending_ones_wait(
    world: World, hanging: MariaDB
) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    assert isinstance(await running.client.send(NUMBER, "before"), core.Accepted)

    hanging.pause()
    in_hand = asyncio.create_task(running.client.send(NUMBER, "in hand"))
    async with asyncio.timeout(10):
        # An earlier response of the database counts for a second.
        while (await running.client.call(core.GetHealth)).gateway_status != "disconnected":
            pass
    # The health probe and the commit have limits of 2 s each. A message between them waits for the database.
    await soon(lambda: running.shard.context.journal.is_stalled)
    assert not in_hand.done()
    # Not together with the message in progress, which the database may keep for the 10 s that a transaction may take.
    async with lateness.measured() as late:
        started = time.monotonic()
        refused = await running.client.send(NUMBER, "turned away")
        assert time.monotonic() - started < 8.0 + late.seconds
    assert isinstance(refused, core.Refused)
    assert (refused.code, refused.retry_after) == (1011, 1), "nothing was done: it may be sent again"

    hanging.resume()
    async with asyncio.timeout(30):
        assert isinstance(await in_hand, core.Accepted)
        assert isinstance(await running.client.send(NUMBER, "after"), core.Accepted)
    assert not running.task.done()
