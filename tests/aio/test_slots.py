"""Slots: a bounded number at a time, the others in order of arrival, and none behind one that has waited too
long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tidings.aio.slots import Slots, SlotsExhausted


@pytest.fixture
async def advance(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that advances the loop's clock by a number of seconds."""
    loop = asyncio.get_running_loop()
    now, ahead = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: now() + sum(ahead))
    return ahead.append


async def take(places: Slots, order: list[int], number: int) -> None:
    await places.take()
    order.append(number)


async def waiting(places: Slots, order: list[int], count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(take(places, order, number)) for number in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_waiters_get_slots_in_order_of_arrival() -> None:
    places, order = Slots(2), list[int]()
    tasks = await waiting(places, order, 5)
    assert order == [0, 1]
    assert not places.try_take()
    for _ in range(3):
        places.release()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("gone", [[1], [2], [1, 2], [1, 2, 3]])
async def test_a_cancelled_waiter_keeps_no_slot(gone: list[int]) -> None:
    places, order = Slots(1), list[int]()
    tasks = await waiting(places, order, 4)
    # The first waiter gets the slot at the same moment at which it may give up.
    places.release()
    for number in gone:
        tasks[number].cancel()
    await asyncio.wait([tasks[number] for number in gone])
    staying = [number for number in range(4) if number not in gone]
    for _ in staying[1:]:
        places.release()
    await asyncio.gather(*(tasks[number] for number in staying))
    assert order == staying
    places.release()
    assert places.try_take()


async def test_new_waiters_are_refused_once_the_oldest_has_waited_too_long(advance: Callable[[float], None]) -> None:
    places, order = Slots(1, max_wait=1.0), list[int]()
    tasks = await waiting(places, order, 2)
    assert not places.is_overloaded()
    advance(1.1)
    assert places.is_overloaded()
    with pytest.raises(SlotsExhausted):
        await places.take()
    places.release()
    await asyncio.gather(*tasks)
    assert not places.is_overloaded()
    assert order == [0, 1]


async def test_a_prior_delay_shortens_the_allowed_wait_for_a_slot(advance: Callable[[float], None]) -> None:
    places, order = Slots(1, max_wait=1.0), list[int]()
    assert not places.is_overloaded(2.0), "nobody waits here"
    tasks = await waiting(places, order, 2)
    advance(0.6)
    assert not places.is_overloaded(0.3)
    assert places.is_overloaded(0.5)
    places.release()
    await asyncio.gather(*tasks)


async def test_a_cancelled_waiter_does_not_keep_the_slots_overloaded(advance: Callable[[float], None]) -> None:
    places, order = Slots(1, max_wait=1.0), list[int]()
    tasks = await waiting(places, order, 2)
    advance(1.1)
    tasks[1].cancel()
    await asyncio.wait([tasks[1]])
    assert not places.is_overloaded()


async def test_resizing_gives_new_slots_to_waiters() -> None:
    places, order = Slots(1), list[int]()
    tasks = await waiting(places, order, 3)
    places.resize(3)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]
