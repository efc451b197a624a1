"""Services, the long-running parts of a process: started in order, stopped in reverse order under a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Protocol

log = logging.getLogger(__name__)


class Service(Protocol):
    """A named background loop. `run` returns soon after `stop` is set, with its work flushed."""

    @property
    def name(self) -> str: ...

    async def run(self, stop: asyncio.Event) -> None: ...


class ServiceFailed(Exception):
    """A service ended before it was stopped, or with an error; the process should stop and report it."""

    def __init__(self, name: str, cause: BaseException | None) -> None:
        super().__init__(f"service {name} ended: {cause!r}" if cause else f"service {name} ended by itself")
        self.name = name
        self.cause = cause


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended. Their results and errors are dropped."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def run_services(
    services: Sequence[Service],
    stop: asyncio.Event,
    *,
    grace: float = 10.0,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Run all services until `stop`, then stop them one by one, the last started first.

    Raises `ServiceFailed` when one ends before `stop`; the others are stopped first.

    grace: seconds that each has to finish before it is cancelled.
    stopping(): called before the first of them is stopped.
    """
    stops = [asyncio.Event() for _ in services]
    tasks = [
        asyncio.create_task(service.run(event), name=service.name)
        for service, event in zip(services, stops, strict=True)
    ]
    waiter = asyncio.create_task(stop.wait(), name="stop")
    failed: ServiceFailed | None = None
    try:
        done, _ = await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if waiter not in done:
            task = next(iter(done))
            cause = None if task.cancelled() else task.exception()
            failed = ServiceFailed(task.get_name(), cause)
            log.error("service.failed", extra={"service": task.get_name(), "error": repr(cause)}, exc_info=cause)
    finally:
        waiter.cancel()
        stopping()
        for event, task in zip(reversed(stops), reversed(tasks), strict=True):
            event.set()
            _, late = await asyncio.wait([task], timeout=grace)
            if late:
                log.warning("service.cancelled", extra={"service": task.get_name(), "grace_s": grace})
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                error = (await asyncio.gather(task, return_exceptions=True))[0]
                if isinstance(error, Exception) and failed is None:
                    failed = ServiceFailed(task.get_name(), error)
    if failed is not None:
        raise failed from failed.cause


async def run_workers(stop: asyncio.Event, *workers: Coroutine[Any, Any, None]) -> None:
    """Run endless workers until `stop`, or until one of them fails. Raises its error."""
    working = [asyncio.create_task(worker) for worker in workers]
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*working, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*working, stopping):
            task.cancel()
        results = await asyncio.gather(*working, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


async def repeat(
    stop: asyncio.Event,
    wakeup: Wakeup,
    once: Callable[[], Coroutine[Any, Any, float | None]],
    *,
    failed: Callable[[Exception], float],
) -> None:
    """Run `once` again and again until `stop` is set, which cancels a run in progress.

    wakeup: ends the wait between two runs. It is woken at the end, because another loop may wait for it by then.
    once(): returns the seconds until the next run; None to wait for `wakeup` only
    failed(error): returns the seconds until the next run after one that failed; raises an error that ends the loop
    """
    stopping = asyncio.create_task(stop.wait())
    stopping.add_done_callback(lambda _: wakeup.wake())
    running: asyncio.Task[float | None] | None = None
    try:
        while not stop.is_set():
            running = asyncio.create_task(once())
            await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                # Stopping does not wait for an unreachable database.
                break
            try:
                pause = running.result()
            except Exception as error:
                pause = failed(error)
            await wakeup.wait(pause)
    finally:
        stopping.cancel()
        if running is not None:
            await cancel([running])
        wakeup.wake()


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set `stop` on SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)


async def wait_for(stop: asyncio.Event, seconds: float) -> bool:
    """Wait for `stop`, at most `seconds`; returns whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return stop.is_set()


class Wakeup:
    """Event that is consumed by waiting: `wake()` is idempotent and wakes one waiter now or at its next wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Wake the waiter."""
        self._event.set()

    @contextlib.contextmanager
    def woken_by(self, stop: asyncio.Event) -> Iterator[None]:
        """Wake the waiter when `stop` is set, too, for the duration of the block."""
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: self.wake())
        try:
            yield
        finally:
            stopping.cancel()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for `wake()`, at most `timeout` seconds; returns whether it was called."""
        if not self._event.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._event.wait()
        is_woken = self._event.is_set()
        self._event.clear()
        return is_woken
