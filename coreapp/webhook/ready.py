"""Due callbacks, round robin over the recipients they concern."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Sequence

from tidings.storage.business.callbacks import Callback


class ReadyCallbacks:
    """Due callbacks, one of each recipient after the other, so that no recipient waits for all callbacks of another.
    Callbacks loaded from the database have no known recipient and form one queue together.
    """

    def __init__(self) -> None:
        self._queues: dict[str, collections.deque[Callback]] = {}
        # Each key of `_queues` once.
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
        """Return all callbacks, those of each recipient in order."""
        return [callback for queue in self._queues.values() for callback in queue]

    def first(self) -> Sequence[Callback]:
        """Return the longest-waiting callback of each recipient."""
        return [callback for queue in list(self._queues.values()) for callback in itertools.islice(queue, 1)]
