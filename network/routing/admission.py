"""Admission of envelopes whose recipient is registered and does not block their sender, in their order."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Protocol

from network.routing.delivery_queue import Origin
from network.routing.undecided import REFUSED
from tidings.runtime.batcher import BatcherFull
from tidings.wire import device


class Directory(Protocol):
    """Registered numbers and whom each blocks; `None` for a number that is not registered."""

    def get(self, number: str) -> frozenset[str] | None:
        """From memory; `None` is no answer here."""
        ...

    def look_up(self, number: str) -> asyncio.Future[frozenset[str] | None]:
        """Raises `BatcherFull`."""
        ...


class Admission:
    """Admission by the directory. At most `limit` envelopes wait for its answer; more are `overloaded`."""

    def __init__(self, directory: Directory, admit: Callable[[Origin, device.Send], None], limit: int) -> None:
        self._directory = directory
        self._admit = admit
        self._limit = limit
        self._asking: dict[str, list[tuple[Origin, device.Send]]] = {}
        self._waiting = 0

    def take(self, origin: Origin, frame: device.Send) -> None:
        """Admit one envelope or refuse it, now or when the directory has answered."""
        blocked = self._directory.get(frame.to)
        if blocked is None or frame.to in self._asking:
            self._ask(origin, frame)
        else:
            self._judge(origin, frame, blocked)

    def _judge(self, origin: Origin, frame: device.Send, blocked: frozenset[str] | None) -> None:
        if blocked is None:
            refuse(origin, frame, device.NO_SUCH_NUMBER)
        elif frame.sender in blocked:
            refuse(origin, frame, device.BLOCKED)
        else:
            self._admit(origin, frame)

    def _ask(self, origin: Origin, frame: device.Send) -> None:
        if self._waiting >= self._limit:
            refuse(origin, frame, device.OVERLOADED)
            return
        waiting = self._asking.get(frame.to)
        if waiting is None:
            try:
                answer = self._directory.look_up(frame.to)
            except BatcherFull:
                refuse(origin, frame, device.OVERLOADED)
                return
            waiting = self._asking[frame.to] = []
            answer.add_done_callback(functools.partial(self._answered, frame.to))
        waiting.append((origin, frame))
        self._waiting += 1

    def _answered(self, number: str, answer: asyncio.Future[frozenset[str] | None]) -> None:
        waiting = self._asking.pop(number)
        self._waiting -= len(waiting)
        failed = answer.cancelled() or answer.exception() is not None
        for origin, frame in waiting:
            if failed:
                refuse(origin, frame, device.OVERLOADED)
            else:
                self._judge(origin, frame, answer.result())


def refuse(origin: Origin, frame: device.Send, reason: str, detail: str = "") -> None:
    """Tell the sender, and count."""
    REFUSED.labels(reason).inc()
    origin.refused(frame.n, reason, detail)
