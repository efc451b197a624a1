"""Waiting for an event in another part of the test, without sleeping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TIMEOUT = 60.0  # seconds


class Signals:
    """Condition variable for tests: a change is announced with `changed`, and waits name their condition."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def changed(self) -> None:
        for entry in list(self._waiting):
            predicate, future = entry
            if not future.done() and predicate():
                future.set_result(None)

    async def until(self, predicate: Callable[[], bool], timeout: float = TIMEOUT) -> None:
        """Return once `predicate()` is true. It is checked after each change."""
        if predicate():
            return
        entry = (predicate, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(timeout):
                await entry[1]
        finally:
            self._waiting.remove(entry)


async def soon(predicate: Callable[[], bool], timeout: float = TIMEOUT) -> None:
    """Run event-loop iterations until a condition without a signal is true."""
    async with asyncio.timeout(timeout):
        while not predicate():  # noqa: ASYNC110
            await asyncio.sleep(0)
