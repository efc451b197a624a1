"""Remote calls over one connection: many in flight, each response matched to its request by the number `n`."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tidings.wire.connection import Connection, Disconnected, NotSent

Response = TypeVar("Response")


class TooManyRequests(NotSent):
    """The limit of requests in flight is reached: the request was not sent."""


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class _Expiry:
    """Timeout of one call.

    An object, because a function that reschedules itself would be a reference cycle per message for the interpreter GC.
    """

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    timeout: float
    _: dataclasses.KW_ONLY
    longer: Callable[[], float] | None
    _timer: asyncio.TimerHandle = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self._timer = self.loop.call_later(self.timeout, self._over)

    def cancel(self) -> None:
        self._timer.cancel()

    def _over(self) -> None:
        more = self.longer() if self.longer is not None else 0
        if more > 0:
            self.timeout += more
            self._timer = self.loop.call_later(more, self._over)
        elif not self.future.done():
            self.future.set_exception(TimeoutError(f"no answer within {self.timeout:g} s"))


class Requests(Generic[Response]):
    """Calls in flight on one connection.

    The owner is a `Handler`, which calls `answered` for each response and `lost` when the connection closes.
    """

    def __init__(self, *, max_in_flight: int = 20_000) -> None:
        self._max_in_flight = max_in_flight
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._next = 0

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    async def call(
        self,
        connection: Connection | None,
        make: Callable[[int], Any],
        *,
        timeout: float,
        longer: Callable[[], float] | None = None,
    ) -> Response:
        """Send the request that `make(n)` builds, and return its response.

        Raises `Disconnected` when the connection is lost, `NotSent` (and `TooManyRequests`) when the request was not
        written to it, and `TimeoutError` after `timeout` seconds.

        longer: called when the time is over; returns the seconds to wait further, 0 to give up
        """
        if connection is None or not connection.is_open:
            raise NotSent("not connected")
        if len(self._waiting) >= self._max_in_flight:
            raise TooManyRequests(f"{len(self._waiting)} requests are already in flight")
        self._next += 1
        number = self._next
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = loop.create_future()
        self._waiting[number] = future
        expiry = _Expiry(loop, future, timeout, longer=longer)
        writes = connection.writes
        try:
            connection.send(make(number))
            return await future
        except Disconnected as error:
            if connection.writes == writes:
                raise NotSent(str(error)) from None
            raise
        finally:
            expiry.cancel()
            self._waiting.pop(number, None)

    def answered(self, number: int, answer: Response) -> bool:
        """Pass a response to its caller. Returns False when no caller waits for it (any longer)."""
        future = self._waiting.get(number)
        if future is None or future.done():
            return False
        future.set_result(answer)
        return True

    def lost(self, reason: str) -> None:
        """Fail all calls in flight with `Disconnected`."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(Disconnected(reason))
