"""The event loop gets to run other work between the items of a burst."""

from __future__ import annotations

import asyncio
import functools
import itertools

import pytest

from tidings.aio.dispatch_limit import INTERVAL, Cancellable, DispatchLimit, RefusalLimit


async def test_calls_run_in_order_with_a_limit_per_event_loop_iteration() -> None:
    turns, loop = DispatchLimit(each=3), asyncio.get_running_loop()
    done: list[object] = []
    for number in range(8):
        turns.take(lambda number=number: done.append(number))
    assert done == [0, 1, 2]
    assert len(turns) == 5
    loop.call_soon(done.append, "other")
    while len(turns):
        await asyncio.sleep(0)
        loop.call_soon(done.append, "other")
    assert [one for one in done if one != "other"] == list(range(8))
    assert done.index("other") < done.index(6)


async def test_a_failing_call_does_not_delay_the_next() -> None:
    turns, loop = DispatchLimit(each=1), asyncio.get_running_loop()
    failed: list[object] = []
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    done: list[int] = []
    turns.take(lambda: done.append(0))
    turns.take(lambda: done.append(1 // 0))
    turns.take(lambda: done.append(2))
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == [0, 2]
    assert len(failed) == 1


async def test_each_event_loop_iteration_has_the_full_limit() -> None:
    turns = DispatchLimit(each=2)
    done: list[int] = []
    for start in (0, 2):
        for number in (start, start + 1):
            turns.take(lambda number=number: done.append(number))
        assert done == list(range(start + 2))
        await asyncio.sleep(0)


async def test_a_call_beyond_the_waiting_limit_is_refused() -> None:
    turns = DispatchLimit(each=1, waiting=2)
    done: list[int] = []
    assert [turns.take(lambda number=number: done.append(number)) for number in range(5)] == [True] * 3 + [False] * 2
    for _ in range(2):
        await asyncio.sleep(0)
    assert done == [0, 1, 2]


async def test_the_delay_is_the_waiting_time_of_the_oldest_call(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, loop = DispatchLimit(each=1, interval=60.0), asyncio.get_running_loop()
    now = 100.0
    monkeypatch.setattr(loop, "time", lambda: now)
    for seconds in (0.0, 0.5, 0.25):
        now += seconds
        turns.take(lambda: None)
    assert turns.delay == 0.25
    turns._next()
    assert turns.delay == 0.0
    turns._next()
    assert turns.delay == 0.0


async def test_a_cancelled_call_does_not_count_towards_the_limit() -> None:
    turns = DispatchLimit(each=1)
    done: list[int] = []
    calls = [Cancellable(functools.partial(done.append, number)) for number in range(5)]
    for call in calls:
        turns.take(call)
    for call in calls[:3]:
        call.cancel()
    await asyncio.sleep(0)
    assert done == [0, 3]
    await asyncio.sleep(0)
    assert done == [0, 3, 4]


def _groups(times: list[float]) -> list[int]:
    """Return the sizes of the groups of nearly simultaneous events."""
    starts = [i for i, time in enumerate(times) if not i or time - times[i - 1] > INTERVAL / 2]
    return [end - start for start, end in itertools.pairwise([*starts, len(times)])]


async def test_refusals_run_in_order_at_the_rate_limit_while_new_ones_arrive() -> None:
    refusals, loop = RefusalLimit(rate=3 / INTERVAL), asyncio.get_running_loop()
    made: list[int] = []
    times: list[float] = []
    over = loop.create_future()

    def refuse(number: int) -> None:
        made.append(number)
        times.append(loop.time())
        if number < 20:
            # A refused client comes again.
            loop.call_soon(refusals.take, functools.partial(refuse, number + 10))
        if len(made) == 30:
            over.set_result(None)

    for number in range(10):
        refusals.take(functools.partial(refuse, number))
    assert made == [0, 1, 2]
    await over
    assert made == list(range(30))
    assert times[20] - times[0] > 5 * INTERVAL


async def test_without_new_requests_each_group_of_refusals_doubles() -> None:
    refusals, loop = RefusalLimit(rate=3 / INTERVAL), asyncio.get_running_loop()
    times: list[float] = []
    over = loop.create_future()

    def refuse() -> None:
        times.append(loop.time())
        if len(times) == 48:
            over.set_result(None)

    for _ in range(48):
        refusals.take(refuse)
    await over
    assert _groups(times) == [3, 3, 6, 12, 24]
    await asyncio.sleep(2 * INTERVAL)
    begun = len(times)
    for _ in range(9):
        refusals.take(lambda: times.append(loop.time()))
    assert len(times) == begun + 3


async def test_few_new_requests_do_not_keep_the_backlog_from_being_cleared() -> None:
    refusals, loop = RefusalLimit(rate=10 / INTERVAL), asyncio.get_running_loop()
    times: list[float] = []
    over = loop.create_future()

    def refuse() -> None:
        times.append(loop.time())
        if len(times) % 10 == 0 and len(times) <= 100:
            refusals.take(refuse)
        if len(times) == 300:
            over.set_result(None)

    for _ in range(290):
        refusals.take(refuse)
    await over
    assert _groups(times)[:4] == [10, 10, 20, 40]
