"""Time limit of many blocks with one timer."""

from __future__ import annotations

import asyncio

import pytest

from coreapp.webhook.poster import TimeLimit


async def _block(limit: TimeLimit, seconds: float) -> str:
    try:
        with limit:
            await asyncio.sleep(seconds)
    except TimeoutError:
        return "timeout"
    return "done"


async def test_a_block_that_takes_too_long_raises_and_the_others_continue() -> None:
    limit, clock = TimeLimit(0.05), asyncio.get_running_loop().time
    started = clock()
    slow = asyncio.create_task(_block(limit, 10))
    await asyncio.sleep(0.02)
    later_started = clock()
    later = asyncio.create_task(_block(limit, 10))
    assert await slow == "timeout"
    assert clock() - started > 0.045
    # Each block has the whole limit.
    assert await later == "timeout"
    assert clock() - later_started > 0.045
    # The timer starts again for the next block, in the same task too.
    assert await _block(limit, 10) == "timeout"
    assert await _block(TimeLimit(60), 0.001) == "done"


async def test_a_cancelled_block_raises_the_cancellation() -> None:
    limit = TimeLimit(0.01)
    task = asyncio.create_task(_block(limit, 10))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_at_the_end_of_the_limit_stays_and_the_task_is_not_cancelled() -> None:
    async def stubborn() -> str:
        with pytest.raises(ValueError), TimeLimit(0.01):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                raise ValueError from None
        await asyncio.sleep(0)
        return "goes on"

    assert await asyncio.create_task(stubborn()) == "goes on"


async def test_ended_blocks_are_not_kept() -> None:
    limit = TimeLimit(10)
    slow = asyncio.create_task(_block(limit, 9))
    for _ in range(100):
        await asyncio.create_task(_block(limit, 0))
    assert len(limit._blocks) == 1
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert not limit._blocks
