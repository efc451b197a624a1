"""The messaging limit of the Cloud API: distinct recipients outside the service window in 24 hours, counted on disk."""

from __future__ import annotations

from typing import Any

from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.signals import soon
from tests.manual_clock import ManualClock
from tidings.storage.business import cloud_limits, service_windows
from tidings.wire import core

PEERS = [f"1555011000{n}" for n in range(6)]
DAY = 24 * 3600.0


async def send(running: Running, to: str, *, kind: str = "template", limit: int = 2) -> Any:
    content = b'{"type":"%b","%b":{"body":"hi"}}' % (kind.encode(), kind.encode())
    return await running.client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, to, kind, content, checked_late=True, recipient_limit=limit)
    )


async def codes(running: Running, *peers: str, **fields: Any) -> list[int]:
    """Send to each of these recipients. Returns 0 for an accepted message, else the code of the refusal."""
    return [getattr(await send(running, peer, **fields), "code", 0) for peer in peers]


async def test_the_limit_counts_recipients_and_not_messages(world: World) -> None:
    world.add_phones(*PEERS)
    clock = ManualClock()
    running = await world.start(clock=clock)
    await world.connected(running)
    one, two, three, *_ = PEERS
    assert await codes(running, one, one, two, three, two, one, three) == [0, 0, 0, 131048, 0, 0, 131048]
    assert await codes(running, three, limit=3) == [0]
    assert await codes(running, three, PEERS[3], limit=0) == [0, 0]
    clock.advance(DAY)
    assert await codes(running, PEERS[4], one, two) == [0, 0, 131048]


async def test_recipients_inside_their_window_and_failing_messages_do_not_count(world: World) -> None:
    world.add_phones(*PEERS)
    clock = ManualClock()
    async with world.database.transaction() as connection:
        written = {peer: int(clock.now() * 1000) for peer in PEERS[:3]}
        await service_windows.save_last_message_at(connection, BUSINESS, written)
    running = await world.start(clock=clock, reengagement_window=True)
    await world.connected(running)
    assert await codes(running, *PEERS[:3], kind="text", limit=1) == [0, 0, 0]
    assert await codes(running, *PEERS[:3], limit=1) == [0, 0, 0]
    # A text outside of the window fails later, and a number without a device is not reached.
    assert await codes(running, PEERS[3], kind="text", limit=1) == [0]
    assert await codes(running, "15550160000", limit=1) == [0]
    async with world.database.reading() as connection:
        assert (await cloud_limits.find(connection, BUSINESS)).reached == 0
    assert await codes(running, PEERS[3], PEERS[4], limit=1) == [0, 131048]


async def test_the_recipient_of_a_refused_message_does_not_count(world: World) -> None:
    await world.configure(callback_backoff_delay_ms=1)
    world.add_phones(*PEERS)
    world.sink.respond = lambda post: 500
    world.settings = world.settings.model_copy(update={"callback_queue_limit": 1})
    running = await world.start()
    await world.connected(running)
    await running.client.check(PEERS[5], wait=False)
    await soon(lambda: len(running.shard.webhook.queue) == 1)
    assert await codes(running, *PEERS[:3]) == [1016, 1016, 1016]
    async with world.database.reading() as connection:
        assert (await cloud_limits.find(connection, BUSINESS)).reached == 0


async def test_the_count_survives_a_restart(world: World) -> None:
    world.add_phones(*PEERS)
    running = await world.start()
    await world.connected(running)
    assert await codes(running, *PEERS[:2]) == [0, 0]
    await running.stopped()
    again = await world.start()
    await world.connected(again)
    assert await codes(again, PEERS[2], PEERS[1]) == [131048, 0]
