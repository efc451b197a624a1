"""A question that many ask and that is asked once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


class Probe(Generic[Arguments, Value]):
    """Whoever asks while `ask` is under way shares its answer, which stands for `seconds` after it came."""

    def __init__(self, ask: Callable[Arguments, Coroutine[Any, Any, Value]], seconds: float, name: str) -> None:
        """name: of the task."""
        self._ask = ask
        self._seconds = seconds
        self._name = name
        self._asking: asyncio.Task[Value] | None = None
        self._answered_at = -math.inf

    async def answer(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Value:
        """What `ask` returns or raises; the arguments are those of whoever comes first."""
        loop = asyncio.get_running_loop()
        if self._asking is None or (self._asking.done() and loop.time() >= self._answered_at + self._seconds):
            self._asking = loop.create_task(self._ask(*arguments, **named), name=self._name)
            self._asking.add_done_callback(self._answered)
        return await asyncio.shield(self._asking)

    def _answered(self, asking: asyncio.Task[Value]) -> None:
        self._answered_at = asking.get_loop().time()
        if not asking.cancelled():
            # Whoever asked may have gone; nobody has to look at the error.
            asking.exception()
