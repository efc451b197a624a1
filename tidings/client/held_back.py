"""Backlogs of sends that the network refuses for now, by sender and recipient: retried in order, a few at a time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from tidings.wire import device

Sent = TypeVar("Sent")

# (sender, recipient or group)
Pair = tuple[str, str]

# Temporary reasons of `Refused` that concern one recipient.
REASONS = (device.MAILBOX_FULL, device.RATE_LIMITED)
# Sends of one pair in flight from the backlog: 1 after a refusal, doubled with each accepted one, up to this.
MAX_WINDOW = 128
# Seconds before a retry: as long as the network asks for, within these bounds.
LEAST_SECONDS, MOST_SECONDS = 1.0, 60.0


class _Backlog(Generic[Sent]):
    """Backlog of one pair."""

    def __init__(self) -> None:
        # Heap of (priority, count, frame, sent). Sends that were refused (priority 0) precede those added later
        # (priority 1).
        self.waiting: list[tuple[int, int, device.Send, Sent]] = []
        # Unanswered sends from the backlog, by id, with their (priority, count).
        self.trying: dict[str, tuple[int, int]] = {}
        self.window = 1  # sends that may be in flight from the backlog
        self.due = 0.0  # event-loop time of the next retry, seconds


class HeldBack(Generic[Sent]):
    """Backlogs by pair. Bounded, as all sends, by what the caller has on its disk.

    While a pair has a backlog, all its sends pass through the backlog, which keeps their order.
    """

    def __init__(self) -> None:
        self._backlogs: dict[Pair, _Backlog[Sent]] = {}
        self._count = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._backlogs)

    def holds(self, pair: Pair) -> bool:
        """Return whether the pair has a backlog, so that further sends must wait in it."""
        return pair in self._backlogs

    def add(self, frame: device.Send, sent: Sent) -> None:
        """Append a send to the backlog of its pair, which exists."""
        self._push(frame, sent, (1, next(self._count)))

    def refused(self, frame: device.Send, sent: Sent, *, now: float, seconds: float) -> None:
        """Put a send that the network refused into the backlog, for `seconds`; the window returns to 1."""
        backlog = self._backlogs.setdefault((frame.sender, frame.to), _Backlog())
        priority = backlog.trying.pop(frame.id, None) or (0, next(self._count))
        self._push(frame, sent, priority)
        backlog.window = 1
        backlog.due = max(backlog.due, now + min(max(seconds, LEAST_SECONDS), MOST_SECONDS))

    def answered(self, frame: device.Send, now: float) -> Iterator[tuple[device.Send, Sent]]:
        """Record the final answer to a send; yield the sends that can follow it."""
        pair = frame.sender, frame.to
        backlog = self._backlogs.get(pair)
        if backlog is not None and backlog.trying.pop(frame.id, None) is not None:
            backlog.window = min(2 * backlog.window, MAX_WINDOW)
            yield from self._take(pair, backlog, now)

    def due(self, now: float) -> Iterator[tuple[device.Send, Sent]]:
        """Yield all sends that can be retried now."""
        for pair, backlog in list(self._backlogs.items()):
            yield from self._take(pair, backlog, now)

    def next_due(self, now: float) -> float | None:
        """Return when `due` yields something at the earliest: in the past when it does now, None when nothing waits.

        A pair whose retry time has passed and that has a retry in flight is not counted: its next sends follow the
        answer.
        """
        backlogs = [one for one in self._backlogs.values() if one.waiting and (one.due > now or not one.trying)]
        return min((one.due for one in backlogs), default=None)

    def drop(self, keep: Callable[[str], bool] | None = None) -> None:
        """Drop all backlogs, except those of the senders for which `keep` is true."""
        self._backlogs = {pair: log for pair, log in self._backlogs.items() if keep is not None and keep(pair[0])}

    def _push(self, frame: device.Send, sent: Sent, priority: tuple[int, int]) -> None:
        heapq.heappush(self._backlogs[frame.sender, frame.to].waiting, (*priority, frame, sent))

    def _take(self, pair: Pair, backlog: _Backlog[Sent], now: float) -> Iterator[tuple[device.Send, Sent]]:
        while backlog.waiting and len(backlog.trying) < backlog.window and backlog.due <= now:
            *priority, frame, sent = heapq.heappop(backlog.waiting)
            backlog.trying[frame.id] = (priority[0], priority[1])
            yield frame, sent
        if not backlog.waiting and not backlog.trying:
            del self._backlogs[pair]
