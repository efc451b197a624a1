"""Concurrent calls of a probe share one run."""

from __future__ import annotations

import asyncio

import pytest

from tidings.aio.probe import Probe


class Measurement:
    def __init__(self) -> None:
        self.runs: list[object] = []
        self.finish = asyncio.Event()

    async def run(self, given: object) -> object:
        self.runs.append(given)
        await self.finish.wait()
        if isinstance(given, Exception):
            raise given
        return given


async def test_concurrent_calls_share_one_result_that_stays_valid_for_a_time() -> None:
    measurement = Measurement()
    probe = Probe(measurement.run, 60.0, "probe")
    pending = [asyncio.create_task(probe.result(number)) for number in range(5)]
    await asyncio.sleep(0)
    measurement.finish.set()
    assert await asyncio.gather(*pending) == [0] * 5
    assert await probe.result(6) == 0
    assert measurement.runs == [0]


async def test_an_expired_result_is_determined_again() -> None:
    measurement = Measurement()
    measurement.finish.set()
    probe = Probe(measurement.run, 0.0, "probe")
    assert [await probe.result(number) for number in range(2)] == [0, 1]


async def test_a_cancelled_caller_affects_no_other_and_an_error_goes_to_all() -> None:
    measurement = Measurement()
    probe = Probe(measurement.run, 60.0, "probe")
    first, second = asyncio.create_task(probe.result(ValueError("x"))), asyncio.create_task(probe.result(1))
    await asyncio.sleep(0)
    first.cancel()
    measurement.finish.set()
    with pytest.raises(ValueError, match="x"):
        await second
    assert first.cancelled()


async def test_a_slow_run_returns_a_recent_last_result_and_is_not_started_twice() -> None:
    measurement = Measurement()
    measurement.finish.set()
    probe = Probe(measurement.run, 0.0, "probe")
    assert await probe.result_within(0.0, 60.0, 0) == 0
    measurement.finish.clear()
    assert [await probe.result_within(0.0, 60.0, number) for number in (1, 2)] == [0, 0]
    waiting = asyncio.create_task(probe.result_within(0.0, -1.0, 3))
    measurement.finish.set()
    assert await waiting == 1
    assert await probe.result_within(60.0, 60.0, 4) == 4
    assert measurement.runs == [0, 1, 4]


async def test_without_a_last_result_or_after_an_error_callers_wait_for_the_next() -> None:
    measurement = Measurement()
    probe = Probe(measurement.run, 0.0, "probe")
    waiting = asyncio.create_task(probe.result_within(0.0, 60.0, ValueError("x")))
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    measurement.finish.set()
    with pytest.raises(ValueError, match="x"):
        await waiting
    measurement.finish.clear()
    waiting = asyncio.create_task(probe.result_within(0.0, 60.0, 1))
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    measurement.finish.set()
    assert await waiting == 1
