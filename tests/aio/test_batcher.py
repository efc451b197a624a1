"""Guarantees of the batcher for its callers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.aio import batcher as batcher_module
from tidings.aio.batcher import Batcher, BatcherClosed, BatcherFull


class Poisoned(Exception):
    pass


def is_poisoned(error: Exception) -> bool:
    return isinstance(error, Poisoned)


class Gate:
    """Flush that waits until the test lets it through, and records its items."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.entered = asyncio.Event()
        self.running = 0
        self.most_running = 0

    async def flush(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.entered.set()
        await self.open.wait()
        self.running -= 1
        return [item * 2 for item in items]


async def test_a_single_item_is_flushed_at_once() -> None:
    gate = Gate()
    gate.open.set()
    assert await Batcher("t", gate.flush).submit(21) == 42
    assert gate.batches == [[21]]


async def test_items_of_one_event_loop_iteration_share_a_flush() -> None:
    gate = Gate()
    gate.open.set()
    batcher = Batcher("t", gate.flush)
    assert await asyncio.gather(*(batcher.submit(n) for n in range(5))) == [0, 2, 4, 6, 8]
    assert gate.batches == [[0, 1, 2, 3, 4]]


async def test_items_that_arrive_during_a_flush_go_into_the_next() -> None:
    gate = Gate()
    batcher = Batcher("t", gate.flush)
    first = batcher.put(1)
    await gate.entered.wait()
    later = [batcher.put(n) for n in (2, 3, 4)]
    assert batcher.pending == 3
    gate.open.set()
    assert await asyncio.gather(first, *later) == [2, 4, 6, 8]
    assert gate.batches == [[1], [2, 3, 4]]


async def test_the_next_flush_starts_before_callers_of_the_previous_one_resume() -> None:
    gate = Gate()
    batcher = Batcher("t", gate.flush)
    flushes: list[int] = []

    async def wait() -> None:
        await batcher.submit(1)
        flushes.append(len(gate.batches))

    waiting = asyncio.create_task(wait())
    await gate.entered.wait()
    later = batcher.put(2)
    gate.open.set()
    await asyncio.gather(waiting, later)
    assert flushes == [2]


async def test_items_queued_together_are_all_queued_or_none() -> None:
    gate = Gate()
    batcher = Batcher("t", gate.flush, max_pending=3)
    first = batcher.put(1)
    with pytest.raises(BatcherFull):
        batcher.put_all([2, 3, 4])
    assert batcher.pending == 1
    others = batcher.put_all([2, 3])
    assert batcher.pending == 3
    gate.open.set()
    await asyncio.gather(first, *others)
    await batcher.close()
    with pytest.raises(BatcherClosed):
        batcher.put_all([4])


async def test_items_beyond_the_limit_are_refused_and_queued_ones_are_kept() -> None:
    gate = Gate()
    batcher = Batcher("t", gate.flush, max_pending=2)
    kept = [batcher.put(1), batcher.put(2)]
    with pytest.raises(BatcherFull):
        batcher.put(3)
    gate.open.set()
    assert await asyncio.gather(*kept) == [2, 4]


async def test_a_poisoned_item_fails_alone() -> None:
    async def flush(items: Sequence[int]) -> Sequence[int]:
        if 13 in items:
            raise Poisoned
        return list(items)

    batcher = Batcher("t", flush, isolate=is_poisoned)
    results = await asyncio.gather(*(batcher.submit(n) for n in (11, 12, 13, 14)), return_exceptions=True)
    assert [results[0], results[1], results[3]] == [11, 12, 14]
    assert isinstance(results[2], Poisoned)


async def test_other_errors_fail_every_caller_of_the_batch_but_not_the_next_batch() -> None:
    calls = 0

    async def flush(items: Sequence[int]) -> Sequence[int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionError("down")
        return list(items)

    batcher = Batcher("t", flush, isolate=is_poisoned)
    results = await asyncio.gather(batcher.submit(1), batcher.submit(2), return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionError, ConnectionError]
    assert calls == 1
    assert await batcher.submit(3) == 3


async def test_a_flush_with_too_few_results_fails_its_callers() -> None:
    async def flush(items: Sequence[int]) -> Sequence[int]:
        return items[:-1]

    batcher = Batcher("t", flush)
    results = await asyncio.gather(batcher.submit(1), batcher.submit(2), return_exceptions=True)
    assert all(isinstance(result, RuntimeError) for result in results)


async def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    gate = Gate()
    batcher = Batcher("t", gate.flush)
    gone, kept = batcher.put(1), batcher.put(2)
    gone.cancel()
    gate.open.set()
    assert await kept == 4


async def test_close_flushes_pending_items_and_refuses_new_ones() -> None:
    gate = Gate()
    batcher = Batcher("t", gate.flush, max_size=2)
    futures = [batcher.put(n) for n in range(5)]
    closing = asyncio.create_task(batcher.close())
    await gate.entered.wait()
    with pytest.raises(BatcherClosed):
        batcher.put(99)
    gate.open.set()
    await closing
    assert [future.result() for future in futures] == [0, 2, 4, 6, 8]


async def test_a_cancelled_flush_cancels_its_callers_even_during_isolation() -> None:
    blocked = asyncio.Event()

    async def flush(items: Sequence[int]) -> Sequence[int]:
        if len(items) > 1:
            raise Poisoned
        blocked.set()
        await asyncio.Event().wait()
        return []

    batcher = Batcher("stuck", flush, isolate=is_poisoned)
    futures = [batcher.put(n) for n in range(3)]
    await blocked.wait()
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "batch stuck"]
    task.cancel()
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)


async def test_spacing_delays_small_batches_but_not_a_full_one() -> None:
    gate = Gate()
    gate.open.set()
    # The spacing is longer than any test may run: only items that need no timer can return.
    batcher = Batcher("t", gate.flush, max_size=3, spacing=3600.0)
    assert await batcher.submit(0) == 0
    stream = [batcher.put(n) for n in (1, 2)]
    await asyncio.wait(stream, timeout=0.01)
    assert gate.batches == [[0]]
    stream.append(batcher.put(3))
    assert await asyncio.gather(*stream) == [2, 4, 6]
    assert gate.batches == [[0], [1, 2, 3]]
    last = batcher.put(4)
    await batcher.close()
    assert last.result() == 8


async def test_an_urgent_item_flushes_items_delayed_by_the_spacing() -> None:
    gate = Gate()
    batcher = Batcher("t", gate.flush, max_size=10, spacing=3600.0)
    busy = batcher.put(0)
    await gate.entered.wait()
    patient = batcher.put(1)
    urgent = batcher.put(2, urgent=True)
    gate.open.set()
    assert await asyncio.gather(busy, patient, urgent) == [0, 2, 4]
    later = batcher.put(3)
    await asyncio.wait([later], timeout=0.01)
    assert not later.done()
    assert await batcher.put(4, urgent=True) == 8
    assert gate.batches == [[0], [1, 2], [3, 4]]
    assert later.result() == 6


async def test_a_caller_that_received_its_result_joins_the_next_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher_module, "LONGEST_PAUSE", 3600.0)
    gate = Gate()
    # The pause is longer than any test may run: only urgent items end it.
    batcher = Batcher("t", gate.flush, max_size=10, pause_share=1e9)
    first = batcher.put(0)
    await gate.entered.wait()
    second = batcher.put(1)
    await asyncio.wait([first], timeout=0.01)
    gate.open.set()
    assert await first == 0
    third = batcher.put(2)
    await asyncio.wait([second, third], timeout=0.01)
    assert gate.batches == [[0]]
    assert await batcher.put(3, urgent=True) == 6
    assert gate.batches == [[0], [1, 2, 3]]
    last = batcher.put(4)
    await batcher.close()
    assert last.result() == 8


async def test_the_rest_after_a_long_flush_is_bounded() -> None:
    gate = Gate()
    # The flush takes 10 ms, so the pause would be 100,000 s.
    batcher = Batcher("t", gate.flush, pause_share=1e7)
    first = batcher.put(0)
    await gate.entered.wait()
    await asyncio.wait([first], timeout=0.01)
    gate.open.set()
    async with asyncio.timeout(60):
        assert await asyncio.gather(first, batcher.put(1)) == [0, 2]
    assert gate.batches == [[0], [1]]


@given(
    items=st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 3)), max_size=60),
    max_size=st.integers(1, 8),
    max_in_flight=st.integers(1, 4),
    delays=st.lists(st.integers(0, 4), min_size=1, max_size=10),
)
def test_every_item_gets_its_own_result(
    items: list[tuple[int, int]], max_size: int, max_in_flight: int, delays: list[int]
) -> None:
    """Items are (value, event-loop iterations to wait before it is put). Negative values are poisoned."""

    async def scenario() -> None:
        running = most = flushed = 0
        starts: list[int] = []

        async def flush(batch: Sequence[tuple[int, int]]) -> Sequence[tuple[str, int]]:
            nonlocal running, most, flushed
            assert 1 <= len(batch) <= max_size
            running += 1
            most = max(most, running)
            turns = delays[flushed % len(delays)]
            flushed += 1
            starts.extend(index for index, _ in batch)
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
                if any(value < 0 for _, value in batch):
                    raise Poisoned
                return [("done", index) for index, _ in batch]
            finally:
                running -= 1

        batcher: Batcher[tuple[int, int], tuple[str, int]] = Batcher(
            "property", flush, max_size=max_size, max_in_flight=max_in_flight, isolate=is_poisoned
        )
        futures = []
        for index, (value, turns) in enumerate(items):
            for _ in range(turns):
                await asyncio.sleep(0)
            futures.append(batcher.put((index, value)))
        await batcher.close()
        for index, ((value, _), future) in enumerate(zip(items, futures, strict=True)):
            if value < 0:
                assert isinstance(future.exception(), Poisoned)
            else:
                assert future.result() == ("done", index)
        assert most <= max_in_flight
        first_seen = list(dict.fromkeys(starts))
        assert first_seen == list(range(len(items)))

    asyncio.run(scenario())


async def test_dropped_items_are_never_flushed() -> None:
    gate = Gate()
    batcher: Batcher[int, int] = Batcher("test", gate.flush, max_size=2)
    first = batcher.put(0)
    await gate.entered.wait()
    futures = [batcher.put(n) for n in range(1, 7)]
    assert batcher.drop(lambda n: n % 2 == 0) == [2, 4, 6]
    assert batcher.pending == 3
    gate.open.set()
    await batcher.close()
    assert first.done()
    assert [item for batch in gate.batches for item in batch] == [0, 1, 3, 5]
    assert [future.cancelled() for future in futures] == [False, True, False, True, False, True]
