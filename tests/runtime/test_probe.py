"""What many ask is asked once."""

from __future__ import annotations

import asyncio
import contextlib

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


async def test_a_slow_answer_is_not_waited_for_while_the_one_before_it_is_good() -> None:
    question = Question()
    question.answer.set()
    probe = Probe(question.ask, 0.0, "probe", patience=0.01, good_for=60.0)
    assert await probe.answer(1) == 1
    question.answer.clear()
    assert [await probe.answer(number) for number in (2, 3)] == [1, 1]
    assert question.asked == [1, 2]
    question.answer.set()
    assert await probe.answer(4) == 2
    assert await probe.answer(5) == 5


async def test_an_answer_that_is_good_no_longer_or_was_none_is_waited_for() -> None:
    for before, good_for in ((1, 0.0), (ValueError("x"), 60.0)):
        question = Question()
        question.answer.set()
        probe = Probe(question.ask, 0.0, "probe", patience=0.01, good_for=good_for)
        with contextlib.suppress(ValueError):
            await probe.answer(before)
        question.answer.clear()
        asking = asyncio.create_task(probe.answer(2))
        asyncio.get_running_loop().call_later(0.05, question.answer.set)
        assert await asking == 2
