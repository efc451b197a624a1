"""A call whose result is shared by concurrent callers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


class Probe(Generic[Arguments, Value]):
    """Shares one run of `call` among concurrent callers; its result is reused for `seconds` after it arrived."""

    def __init__(self, call: Callable[Arguments, Coroutine[Any, Any, Value]], seconds: float, name: str) -> None:
        """call: the function to call. seconds: for which a result or an error is reused. name: of the task."""
        self._call = call
        self._seconds = seconds
        self._name = name
        self._running: asyncio.Task[Value] | None = None
        self._began_at = self._ended_at = self._succeeded_at = -math.inf
        # The latest run that did not fail.
        self._last_success: asyncio.Task[Value] | None = None

    async def result(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Value:
        """Return or raise the result of `call`; the arguments are those of the caller that starts the run."""
        return await asyncio.shield(self._begin(*arguments, **named))

    async def result_within(
        self, timeout: float, age: float, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Value:
        """Return the result of `call`, or an earlier one when it takes too long.

        timeout: seconds after the start of the run at which the last successful result is returned instead.
        age: seconds that this result may be old.
        """
        running = self._begin(*arguments, **named)
        done, _ = await asyncio.wait((running,), timeout=self._began_at + timeout - running.get_loop().time())
        if not done and self._last_success is not None and running.get_loop().time() <= self._succeeded_at + age:
            return self._last_success.result()
        return await asyncio.shield(running)

    def _begin(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> asyncio.Task[Value]:
        loop = asyncio.get_running_loop()
        if self._running is None or (self._running.done() and loop.time() >= self._ended_at + self._seconds):
            self._running = loop.create_task(self._call(*arguments, **named), name=self._name)
            self._running.add_done_callback(self._ended)
            self._began_at = loop.time()
        return self._running

    def _ended(self, running: asyncio.Task[Value]) -> None:
        self._ended_at = running.get_loop().time()
        # The callers may be gone, so mark the error as retrieved.
        if not running.cancelled() and running.exception() is None:
            self._last_success, self._succeeded_at = running, self._ended_at
