"""Very many undecryptable messages of one sender: the webhook receives some by id, of the others the number."""

from __future__ import annotations

import pytest

from coreapp.recovery import recovering, session_repair
from tests.coreapp.conftest import World
from tests.coreapp.media.test_media_waiting import SetBack
from tests.coreapp.receiving.test_events import acknowledged, with_session
from tests.coreapp.recovery.test_repeats import GARBAGE, NUMBER, errors
from tests.manual_clock import ManualClock
from tidings.wire import device as frames

OTHER = "15550110002"


async def flood(world: World, prefix: str, count: int, sender: str = NUMBER) -> None:
    ids = [f"{prefix}-{n}" for n in range(count)]
    for id in ids:
        world.network.deliver(sender, frames.MESSAGE, id=id, body=GARBAGE, timestamp=1_700_000_123_456)
    await acknowledged(world, *ids)


async def test_a_flood_of_undecryptable_messages_is_reported_by_ten_ids_and_a_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_repair, "MAX_REQUESTED", 5)
    clock = ManualClock()
    running, _, _ = await with_session(world, clock=clock)
    await flood(world, "bad", 300)
    await flood(world, "other", 1, OTHER)
    await world.sink.signals.until(lambda: len(errors(world)) == recovering.REPORTED_EACH)
    assert all(f" from {NUMBER} " in error for error in errors(world))
    # The count is on disk.
    await running.killed()
    running = await world.start(node="second", clock=clock)
    await world.connected(running)
    clock.advance(recovering.SUMMARY_SECONDS + 1)
    await running.shard.recovery.recovering.run_once()
    more = 300 - 5 - recovering.REPORTED_EACH
    summary = f"{more} more messages from {NUMBER}, since 1700000123, could not be decrypted"
    await world.sink.signals.until(lambda: summary in errors(world))
    # Requested messages that never arrive are reported by id within the rate limit, which the new owner starts afresh.
    clock.advance(recovering.MESSAGE_SECONDS)
    await running.shard.recovery.recovering.run_once()
    await world.sink.signals.until(lambda: len(errors(world)) == recovering.REPORTED_EACH + 1 + 5 + 1)
    assert f"the message other-0 from {OTHER} could not be decrypted" in errors(world)
    await running.stopped()


async def test_requested_messages_that_never_arrive_are_counted_and_reported_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovering, "REPORTED_EACH", 2)
    clock = ManualClock()
    running, _, _ = await with_session(world, clock=clock)
    await flood(world, "bad", 20)
    clock.advance(recovering.MESSAGE_SECONDS + 1)
    await running.shard.recovery.recovering.run_once()
    await world.sink.signals.until(lambda: len(errors(world)) == 2)
    clock.advance(recovering.SUMMARY_SECONDS + 1)
    for _ in range(2):
        await running.shard.recovery.recovering.run_once()
    await world.sink.signals.until(lambda: len(errors(world)) == 3)
    assert errors(world)[-1] == f"18 more messages from {NUMBER}, since 1700000123, could not be decrypted"
    await running.stopped()


async def test_a_clock_that_is_set_back_delays_no_report(world: World) -> None:
    clock = SetBack()
    running, _, _ = await with_session(world, clock=clock)
    await flood(world, "first", 1)
    clock.set_back(3600)
    await flood(world, "second", 1, OTHER)
    clock.advance(301)
    await running.shard.recovery.recovering.run_once()
    await world.sink.signals.until(lambda: len(errors(world)) == 2)
    await running.stopped()
