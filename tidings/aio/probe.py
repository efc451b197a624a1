"""A call whose result is shared by concurrent callers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


class Probe(Generic[Arguments, Value]):
    """Shares one run of `ask` among concurrent callers; its result is reused for `seconds` after it arrived."""

    def __init__(self, ask: Callable[Arguments, Coroutine[Any, Any, Value]], seconds: float, name: str) -> None:
        """ask: the call. seconds: for which a result or an error is reused. name: of the task."""
        self._ask = ask
        self._seconds = seconds
        self._name = name
        self._asking: asyncio.Task[Value] | None = None
        self._began_at = self._ended_at = self._answered_at = -math.inf
        # The latest run that did not fail.
        self._answered: asyncio.Task[Value] | None = None

    async def answer(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Value:
        """Return or raise the result of `ask`; the arguments are those of the caller that starts the run."""
        return await asyncio.shield(self._begin(*arguments, **named))

    async def soon(self, patience: float, age: float, *arguments: Arguments.args, **named: Arguments.kwargs) -> Value:
        """Return the result of `ask`, or an earlier one when it takes too long.

        patience: seconds after the start of the run at which the last successful result is returned instead.
        age: seconds that this result may be old.
        """
        asking = self._begin(*arguments, **named)
        done, _ = await asyncio.wait((asking,), timeout=self._began_at + patience - asking.get_loop().time())
        if not done and self._answered is not None and asking.get_loop().time() <= self._answered_at + age:
            return self._answered.result()
        return await asyncio.shield(asking)

    def _begin(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> asyncio.Task[Value]:
        loop = asyncio.get_running_loop()
        if self._asking is None or (self._asking.done() and loop.time() >= self._ended_at + self._seconds):
            self._asking = loop.create_task(self._ask(*arguments, **named), name=self._name)
            self._asking.add_done_callback(self._ended)
            self._began_at = loop.time()
        return self._asking

    def _ended(self, asking: asyncio.Task[Value]) -> None:
        self._ended_at = asking.get_loop().time()
        # The callers may be gone, so mark the error as retrieved.
        if not asking.cancelled() and asking.exception() is None:
            self._answered, self._answered_at = asking, self._ended_at
