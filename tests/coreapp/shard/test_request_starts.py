"""Requests are started a few at a time while many callbacks are due, so that a flood is reported as it is accepted."""

from __future__ import annotations

import asyncio

from coreapp.shard.request_starts import RequestStarts

REQUESTS = 200


async def iterations(callbacks_due: int) -> int:
    """Return the event-loop iterations in which 200 requests that arrive together are started, each in its turn."""
    started: list[int] = []
    starts = RequestStarts(lambda: callbacks_due)
    for index in range(REQUESTS):
        assert starts.take(lambda index=index: started.append(index))  # type: ignore[misc]
    count = 0
    while len(started) < REQUESTS:
        await asyncio.sleep(0)
        count += 1
    assert started == list(range(REQUESTS))
    return count


async def test_sixty_four_requests_are_started_per_iteration() -> None:
    assert await iterations(callbacks_due=1_000) <= 4


async def test_four_requests_are_started_per_iteration_while_more_than_1_000_callbacks_are_due() -> None:
    # The first 64 arrive before the limit is known.
    assert 34 <= await iterations(callbacks_due=1_001) <= 36


async def test_more_than_20_000_waiting_requests_are_not_taken() -> None:
    starts = RequestStarts(lambda: 0)
    taken = [starts.take(lambda: None) for _ in range(20_065)]
    assert taken == [True] * 20_064 + [False]
