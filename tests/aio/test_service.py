"""Services start in order, stop in reverse, and none is left running."""

from __future__ import annotations

import asyncio

import pytest

from tidings.aio.service import ServiceFailed, Wakeup, run_services, run_workers, wait_for


class Recorder:
    """Service that records its start and end."""

    def __init__(
        self,
        name: str,
        journal: list[str],
        *,
        fails: Exception | None = None,  # raised at once; None for no error
        ends: bool = False,  # True to return at once
        deaf: bool = False,  # True to ignore the stop event
        fails_at_stop: Exception | None = None,
    ) -> None:
        self.name = name
        self.started = asyncio.Event()
        self._journal = journal
        self._fails = fails
        self._ends = ends
        self._deaf = deaf
        self._fails_at_stop = fails_at_stop

    async def run(self, stop: asyncio.Event) -> None:
        self._journal.append(f"{self.name} starts")
        self.started.set()
        try:
            if self._fails:
                raise self._fails
            if self._ends:
                return
            await (asyncio.Event() if self._deaf else stop).wait()
            if self._fails_at_stop:
                raise self._fails_at_stop
        except asyncio.CancelledError:
            self._journal.append(f"{self.name} is cancelled")
            raise
        self._journal.append(f"{self.name} stops")


async def test_services_start_in_order_and_stop_in_reverse() -> None:
    journal: list[str] = []
    services = [Recorder(name, journal) for name in "abc"]
    stop = asyncio.Event()
    running = asyncio.create_task(run_services(services, stop))
    await services[-1].started.wait()
    stop.set()
    await running
    assert journal == ["a starts", "b starts", "c starts", "c stops", "b stops", "a stops"]


async def test_a_failing_service_stops_the_others_and_is_named() -> None:
    journal: list[str] = []
    services = [Recorder("a", journal), Recorder("b", journal, fails=OSError("no disk")), Recorder("c", journal)]
    with pytest.raises(ServiceFailed, match="service b ended: OSError") as caught:
        await run_services(services, asyncio.Event())
    assert isinstance(caught.value.__cause__, OSError)
    assert journal[-2:] == ["c stops", "a stops"]


async def test_a_service_that_ends_without_a_stop_fails_the_run() -> None:
    journal: list[str] = []
    with pytest.raises(ServiceFailed, match="service b ended by itself"):
        await run_services([Recorder("a", journal), Recorder("b", journal, ends=True)], asyncio.Event())
    assert journal[-1] == "a stops"


async def test_a_service_that_does_not_stop_is_cancelled_after_the_grace_period() -> None:
    journal: list[str] = []
    services = [Recorder("a", journal), Recorder("b", journal, deaf=True)]
    stop = asyncio.Event()
    stop.set()
    await run_services(services, stop, grace=0.01)
    assert journal[-2:] == ["b is cancelled", "a stops"]


async def test_an_error_while_stopping_is_raised_after_all_services_have_stopped() -> None:
    journal: list[str] = []
    services = [Recorder("a", journal), Recorder("b", journal, fails_at_stop=OSError("last write"))]
    stop = asyncio.Event()
    stop.set()
    with pytest.raises(ServiceFailed, match="service b"):
        await run_services(services, stop)
    assert journal[-1] == "a stops"


async def test_cancelling_the_runner_stops_every_service() -> None:
    journal: list[str] = []
    services = [Recorder(name, journal) for name in "ab"]
    running = asyncio.create_task(run_services(services, asyncio.Event()))
    await services[-1].started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert journal[-2:] == ["b stops", "a stops"]


async def test_a_wake_up_before_the_wait_is_kept_and_consumed_by_it() -> None:
    wakeup = Wakeup()
    wakeup.wake()
    wakeup.wake()
    assert await wakeup.wait(timeout=60)
    assert not await wakeup.wait(timeout=0.001)


async def test_a_wake_up_ends_the_wait() -> None:
    wakeup = Wakeup()
    waiting = asyncio.create_task(wakeup.wait())
    await asyncio.wait([waiting], timeout=0.001)
    wakeup.wake()
    assert await waiting


async def test_wait_for_returns_whether_the_stop_event_was_set() -> None:
    stop = asyncio.Event()
    assert not await wait_for(stop, 0.001)
    stop.set()
    assert await wait_for(stop, 60)


async def test_workers_end_at_stop_and_an_error_of_one_ends_all() -> None:
    async def endless() -> None:
        await asyncio.Event().wait()

    async def broken() -> None:
        raise OSError("broken")

    stop = asyncio.Event()
    running = asyncio.create_task(run_workers(stop, endless(), endless()))
    stop.set()
    await running
    with pytest.raises(OSError, match="broken"):
        await run_workers(asyncio.Event(), endless(), broken())
