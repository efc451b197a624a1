"""Repeated runs of a service: after waits, kicks and errors, until it is stopped."""

from __future__ import annotations

import asyncio

import pytest

from tidings.aio import service
from tidings.aio.service import Wakeup


class Runs:
    """Runs that are noted, some of which fail or hang."""

    def __init__(self, *, failing: int = 0, hangs: bool = False) -> None:
        self.count = 0
        self.cancelled = 0
        self.errors: list[Exception] = []
        self._failing = failing
        self._hangs = hangs
        self.stop, self.wakeup = asyncio.Event(), Wakeup()
        self.loop = asyncio.create_task(self.run())

    async def run(self) -> None:
        await service.repeat(self.stop, self.wakeup, self._once, failed=self._failed)

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(5):
            while self.count < count:  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def _once(self) -> float | None:
        self.count += 1
        if self._hangs:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if self.count <= self._failing:
            raise ValueError("no")
        return None

    def _failed(self, error: Exception) -> float:
        self.errors.append(error)
        if len(self.errors) == 3:
            raise error
        return 0.01


async def test_the_function_runs_at_once_and_after_each_wake_up() -> None:
    runs = Runs()
    await runs.reach(1)
    await asyncio.sleep(0.05)
    assert runs.count == 1
    runs.wakeup.wake()
    await runs.reach(2)
    runs.stop.set()
    async with asyncio.timeout(5):
        await runs.loop
    assert runs.count == 2


async def test_a_failed_run_is_repeated() -> None:
    runs = Runs(failing=2)
    await runs.reach(3)
    assert len(runs.errors) == 2
    runs.stop.set()
    async with asyncio.timeout(5):
        await runs.loop


async def test_an_error_that_is_raised_again_ends_the_loop() -> None:
    runs = Runs(failing=3)
    with pytest.raises(ValueError, match="no"):
        async with asyncio.timeout(5):
            await runs.loop
    assert runs.count == 3


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_run_in_progress_is_cancelled_and_the_next_loop_is_woken(is_cancelled: bool) -> None:
    runs = Runs(hangs=True)
    await runs.reach(1)
    if is_cancelled:
        runs.loop.cancel()
    else:
        runs.stop.set()
    await asyncio.wait([runs.loop], timeout=5)
    assert runs.loop.cancelled() == is_cancelled
    assert runs.cancelled == 1
    assert await runs.wakeup.wait(0)
