"""What many ask is asked once."""

from __future__ import annotations

import asyncio

import pytest

from tidings.runtime.probe import Probe


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


async def test_those_who_ask_meanwhile_share_the_answer_which_stands_for_a_while() -> None:
    question = Question()
    probe = Probe(question.ask, 60.0, "probe")
    asking = [asyncio.create_task(probe.answer(number)) for number in range(5)]
    await asyncio.sleep(0)
    question.answer.set()
    assert await asyncio.gather(*asking) == [0] * 5
    assert await probe.answer(6) == 0
    assert question.asked == [0]


async def test_an_answer_that_stands_no_longer_is_asked_for_again() -> None:
    question = Question()
    question.answer.set()
    probe = Probe(question.ask, 0.0, "probe")
    assert [await probe.answer(number) for number in range(2)] == [0, 1]


async def test_one_who_goes_takes_the_answer_from_nobody_and_an_error_goes_to_all() -> None:
    question = Question()
    probe = Probe(question.ask, 60.0, "probe")
    first, second = asyncio.create_task(probe.answer(ValueError("x"))), asyncio.create_task(probe.answer(1))
    await asyncio.sleep(0)
    first.cancel()
    question.answer.set()
    with pytest.raises(ValueError, match="x"):
        await second
    assert first.cancelled()


async def test_the_last_answer_is_there_at_once_while_it_is_recent_and_the_next_is_asked_for() -> None:
    question = Question()
    question.answer.set()
    probe = Probe(question.ask, 0.0, "probe")
    assert probe.recent(60.0, 0) is None
    assert await probe.answer(1) == 0
    question.answer.clear()
    assert [probe.recent(60.0, number) for number in (2, 3)] == [0, 0]
    assert probe.recent(-1.0, 4) is None
    question.answer.set()
    assert await probe.answer(5) == 2
    assert question.asked == [0, 2]


async def test_what_failed_is_no_answer() -> None:
    question = Question()
    question.answer.set()
    probe = Probe(question.ask, 0.0, "probe")
    with pytest.raises(ValueError, match="x"):
        await probe.answer(ValueError("x"))
    assert probe.recent(60.0, 1) is None
    assert await probe.answer(2) == 1


async def test_whoever_waits_for_a_time_has_the_answer_or_nothing_by_then_and_an_error_that_is_one_of_time() -> None:
    question = Question()
    probe = Probe(question.ask, 0.0, "probe")
    assert await probe.answer_within(0.0, 0) is None
    question.answer.set()
    assert await probe.answer_within(60.0, 1) == 0
    with pytest.raises(TimeoutError, match="x"):
        await probe.answer_within(60.0, TimeoutError("x"))
    assert question.asked[:1] == [0]
    assert len(question.asked) == 2
