"""Sends to recipients for whom the network takes no more for now: kept in their order, and tried a few at a time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from tidings.wire import device

Sent = TypeVar("Sent")

# (sender, recipient or group)
Pair = tuple[str, str]

# Reasons of `Refused` that are about one recipient, and pass.
REASONS = (device.MAILBOX_FULL, device.RATE_LIMITED)
# Sends of one pair that are tried at a time: one after a refusal, then twice as many as were accepted, up to this.
MAX_WINDOW = 128
# Seconds before another try: what the network asks for, between these.
LEAST_SECONDS, MOST_SECONDS = 1.0, 60.0


class _Backlog(Generic[Sent]):
    """Sends of one pair.

    waiting: a heap of (place, count, frame, sent); what was refused on its first way goes before what came later.
    trying:  those that were sent from here and are not answered, with their places.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int, device.Send, Sent]] = []
        self.trying: dict[str, tuple[int, int]] = {}
        self.window = 1
        self.due = 0.0


class HeldBack(Generic[Sent]):
    """Backlogs by pair. Bounded by what the caller has on its disk, as all that is sent.

    While a pair has a backlog everything of it passes through here, so that it arrives in its order.
    """

    def __init__(self) -> None:
        self._backlogs: dict[Pair, _Backlog[Sent]] = {}
        self._count = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._backlogs)

    def holds(self, pair: Pair) -> bool:
        """Does more of this pair have to wait here?"""
        return pair in self._backlogs

    def add(self, frame: device.Send, sent: Sent) -> None:
        """One more of a pair that has a backlog."""
        self._push(frame, sent, (1, next(self._count)))

    def refused(self, frame: device.Send, sent: Sent, *, now: float, seconds: float) -> None:
        """The network does not take this one for so many seconds."""
        backlog = self._backlogs.setdefault((frame.sender, frame.to), _Backlog())
        place = backlog.trying.pop(frame.id, None) or (0, next(self._count))
        self._push(frame, sent, place)
        backlog.window = 1
        backlog.due = max(backlog.due, now + min(max(seconds, LEAST_SECONDS), MOST_SECONDS))

    def answered(self, frame: device.Send, now: float) -> Iterator[tuple[device.Send, Sent]]:
        """The network has taken this one, or never will; what can be sent behind it."""
        pair = frame.sender, frame.to
        backlog = self._backlogs.get(pair)
        if backlog is not None and backlog.trying.pop(frame.id, None) is not None:
            backlog.window = min(2 * backlog.window, MAX_WINDOW)
            yield from self._take(pair, backlog, now)

    def due(self, now: float) -> Iterator[tuple[device.Send, Sent]]:
        """What can be sent again."""
        for pair, backlog in list(self._backlogs.items()):
            yield from self._take(pair, backlog, now)

    def next_due(self, now: float) -> float | None:
        """When `due` has something again, at the earliest; a moment that is over where it has something now.

        What waits behind a try that is on its way, and whose own time has come, is sent when that is answered.
        """
        backlogs = [one for one in self._backlogs.values() if one.waiting and (one.due > now or not one.trying)]
        return min((one.due for one in backlogs), default=None)

    def drop(self, keep: Callable[[str], bool] | None = None) -> None:
        """Forget everything, but for the senders that `keep` is true of."""
        self._backlogs = {pair: log for pair, log in self._backlogs.items() if keep is not None and keep(pair[0])}

    def _push(self, frame: device.Send, sent: Sent, place: tuple[int, int]) -> None:
        heapq.heappush(self._backlogs[frame.sender, frame.to].waiting, (*place, frame, sent))

    def _take(self, pair: Pair, backlog: _Backlog[Sent], now: float) -> Iterator[tuple[device.Send, Sent]]:
        while backlog.waiting and len(backlog.trying) < backlog.window and backlog.due <= now:
            *place, frame, sent = heapq.heappop(backlog.waiting)
            backlog.trying[frame.id] = (place[0], place[1])
            yield frame, sent
        if not backlog.waiting and not backlog.trying:
            del self._backlogs[pair]
