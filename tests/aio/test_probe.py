"""Concurrent calls of a probe share one run."""

from __future__ import annotations

import asyncio

import pytest

from tidings.aio.probe import Probe


class Question:
    def __init__(self) -> None:
        self.asked: list[object] = []
        self.answer = asyncio.Event()

    async def ask(self, given: object) -> object:
        self.asked.append(given)
        await self.answer.wait()
        if isinstance(given, Exception):
            raise given
        return given


async def test_concurrent_calls_share_one_result_that_stays_valid_for_a_time() -> None:
    question = Question()
    probe = Probe(question.ask, 60.0, "probe")
    asking = [asyncio.create_task(probe.result(number)) for number in range(5)]
    await asyncio.sleep(0)
    question.answer.set()
    assert await asyncio.gather(*asking) == [0] * 5
    assert await probe.result(6) == 0
    assert question.asked == [0]


async def test_an_expired_result_is_determined_again() -> None:
    question = Question()
    question.answer.set()
    probe = Probe(question.ask, 0.0, "probe")
    assert [await probe.result(number) for number in range(2)] == [0, 1]


async def test_a_cancelled_caller_affects_no_other_and_an_error_goes_to_all() -> None:
    question = Question()
    probe = Probe(question.ask, 60.0, "probe")
    first, second = asyncio.create_task(probe.result(ValueError("x"))), asyncio.create_task(probe.result(1))
    await asyncio.sleep(0)
    first.cancel()
    question.answer.set()
    with pytest.raises(ValueError, match="x"):
        await second
    assert first.cancelled()


async def test_a_slow_run_returns_a_recent_last_result_and_is_not_started_twice() -> None:
    question = Question()
    question.answer.set()
    probe = Probe(question.ask, 0.0, "probe")
    assert await probe.result_within(0.0, 60.0, 0) == 0
    question.answer.clear()
    assert [await probe.result_within(0.0, 60.0, number) for number in (1, 2)] == [0, 0]
    waiting = asyncio.create_task(probe.result_within(0.0, -1.0, 3))
    question.answer.set()
    assert await waiting == 1
    assert await probe.result_within(60.0, 60.0, 4) == 4
    assert question.asked == [0, 1, 4]


async def test_without_a_last_result_or_after_an_error_callers_wait_for_the_next() -> None:
    question = Question()
    probe = Probe(question.ask, 0.0, "probe")
    waiting = asyncio.create_task(probe.result_within(0.0, 60.0, ValueError("x")))
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    question.answer.set()
    with pytest.raises(ValueError, match="x"):
        await waiting
    question.answer.clear()
    waiting = asyncio.create_task(probe.result_within(0.0, 60.0, 1))
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    question.answer.set()
    assert await waiting == 1
