"""Remote calls over one connection: many in flight, each response matched to its request by the number `n`."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tidings.wire.connection import Connection, Disconnected, NotSent

Response = TypeVar("Response")


class TooManyRequests(NotSent):
    """The limit of requests in flight is reached: the request was not sent."""


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class _Call(Generic[Response]):
    future: asyncio.Future[Response]
    ends_at: float  # event-loop time
    timeout: float  # seconds
    longer: Callable[[], float] | None  # as of `Requests.call`


class Requests(Generic[Response]):
    """Calls in flight on one connection. All have one timer: starting and cancelling one takes longer than the rest of
    a call.

    The owner is a `Handler`, which calls `resolve` for each response and `lost` when the connection closes.
    """

    def __init__(self, *, max_in_flight: int = 20_000) -> None:
        self._max_in_flight = max_in_flight
        self._waiting: dict[int, _Call[Response]] = {}
        self._next = 0
        # Event-loop time at which the timer ends; infinite without one.
        self._check_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

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
        ends_at = loop.time() + timeout
        self._waiting[number] = _Call(future, ends_at, timeout, longer)
        if ends_at < self._check_at:
            self._start_timer(ends_at)
        writes = connection.writes
        try:
            connection.send(make(number))
            return await future
        except Disconnected as error:
            if connection.writes == writes:
                raise NotSent(str(error)) from None
            raise
        finally:
            self._waiting.pop(number, None)

    def resolve(self, number: int, response: Response) -> bool:
        """Pass a response to its caller. Returns False when no caller waits for it (any longer)."""
        call = self._waiting.get(number)
        if call is None or call.future.done():
            return False
        call.future.set_result(response)
        return True

    def lost(self, reason: str) -> None:
        """Fail all calls in flight with `Disconnected`."""
        waiting, self._waiting = self._waiting, {}
        self._stop_timer()
        for call in waiting.values():
            if not call.future.done():
                call.future.set_exception(Disconnected(reason))

    def _start_timer(self, at: float) -> None:
        self._stop_timer()
        self._check_at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._check)

    def _stop_timer(self) -> None:
        self._check_at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        """End the calls whose time is over, and start the timer for the next one that may end."""
        now, self._timer = asyncio.get_running_loop().time(), None
        for call in self._waiting.values():
            if call.ends_at > now or call.future.done():
                continue
            more = call.longer() if call.longer is not None else 0
            if more > 0:
                call.ends_at = now + more
                call.timeout += more
            else:
                call.future.set_exception(TimeoutError(f"no response within {call.timeout:g} s"))
        self._check_at = math.inf
        left = [call.ends_at for call in self._waiting.values() if not call.future.done()]
        if left:
            self._start_timer(min(left))
