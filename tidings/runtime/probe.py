"""A question that many ask and that is asked once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


class Probe(Generic[Arguments, Value]):
    """Whoever asks while `ask` is under way shares its answer, which stands for `seconds` after it came.

    One that does not come within `patience` seconds is not waited for while the one before it is less than `good_for`
    seconds old: that is the answer then.
    """

    def __init__(
        self,
        ask: Callable[Arguments, Coroutine[Any, Any, Value]],
        seconds: float,
        name: str,
        *,
        patience: float = math.inf,
        good_for: float = 0.0,
    ) -> None:
        """name: of the task."""
        self._ask = ask
        self._seconds = seconds
        self._name = name
        self._patience = patience
        self._good_for = good_for
        self._asking: asyncio.Task[Value] | None = None
        # The latest that did not fail, with the loop's time at which it ended; and that of the latest of all.
        self._answered: asyncio.Task[Value] | None = None
        self._answered_at = self._ended_at = -math.inf

    async def answer(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Value:
        """What `ask` returns or raises; the arguments are those of whoever comes first."""
        loop = asyncio.get_running_loop()
        asking = self._asking
        if asking is None or (asking.done() and loop.time() >= self._ended_at + self._seconds):
            asking = self._asking = loop.create_task(self._ask(*arguments, **named), name=self._name)
            asking.add_done_callback(self._ended)
        if self._answered is not None and self._patience < math.inf:
            await asyncio.wait([asking], timeout=self._patience)
            if not asking.done() and loop.time() < self._answered_at + self._good_for:
                return self._answered.result()
        return await asyncio.shield(asking)

    def _ended(self, asking: asyncio.Task[Value]) -> None:
        self._ended_at = asking.get_loop().time()
        # Whoever asked may have gone; nobody has to look at the error.
        if not asking.cancelled() and asking.exception() is None:
            self._answered, self._answered_at = asking, self._ended_at
