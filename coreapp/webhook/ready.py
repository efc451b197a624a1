"""Callbacks that are due, by turns of the recipients they are about."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Sequence

from tidings.storage.business.callbacks import Callback


class ReadyCallbacks:
    """What is due: one of each recipient after the other, so that nobody waits for all of another's; those that a page
    brought, whose recipients are not known, have one turn together."""

    def __init__(self) -> None:
        self._queues: dict[str, collections.deque[Callback]] = {}
        # Each key of these once.
        self._turns: collections.deque[str] = collections.deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, callback: Callback) -> None:
        self._count += 1
        queue = self._queues.get(callback.recipient)
        if queue is None:
            self._queues[callback.recipient] = collections.deque((callback,))
            self._turns.append(callback.recipient)
        else:
            queue.append(callback)

    def pop(self) -> Callback:
        self._count -= 1
        recipient = self._turns.popleft()
        queue = self._queues[recipient]
        callback = queue.popleft()
        if queue:
            self._turns.append(recipient)
        else:
            del self._queues[recipient]
        return callback

    def all(self) -> Sequence[Callback]:
        """Each recipient's in their order."""
        return [callback for queue in self._queues.values() for callback in queue]

    def first(self) -> Sequence[Callback]:
        """Of each recipient the one that has waited longest."""
        return [callback for queue in list(self._queues.values()) for callback in itertools.islice(queue, 1)]
