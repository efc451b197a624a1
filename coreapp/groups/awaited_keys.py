"""Group messages whose key may still arrive in the session with their author, which may belong to another shard."""

from __future__ import annotations

from coreapp.context import ShardContext
from tidings.wire.device import Deliver

# Seconds that a message waits for its key. The author sent the key first, so it takes as long as a commit and a read of
# the database.
PATIENCE = 5.0


class KeyOnItsWay(Exception):
    """The message must be tried again a little later. It stays unacknowledged."""


class AwaitedKeys:
    """Waiting messages; at most as many as the network leaves unacknowledged."""

    def __init__(self, context: ShardContext) -> None:
        self._owns = context.owns
        self._wakeups = context.shared.wakeups
        self._shard = context.shard
        self._clock = context.clock
        # By group and author: the waiting messages in order of arrival, each with the end of its wait in monotonic
        # seconds.
        self._waiting: dict[tuple[str, str], dict[str, float]] = {}

    def require_turn(self, delivery: Deliver) -> None:
        """Raise `KeyOnItsWay` for a message behind a waiting one of the same author."""
        queue = self._waiting.get((delivery.group, delivery.sender))
        if not queue:
            return
        now = self._clock.monotonic()
        for message_id, until in list(queue.items()):
            if message_id == delivery.id:
                return
            if until > now:
                queue.setdefault(delivery.id, now + PATIENCE)
                raise KeyOnItsWay
            del queue[message_id]

    def lacking(self, delivery: Deliver) -> None:
        """Handle a message without a key. Raises `KeyOnItsWay` while the key may still arrive."""
        if self._owns(delivery.sender):
            return
        queue = self._waiting.setdefault((delivery.group, delivery.sender), {})
        now = self._clock.monotonic()
        if queue.setdefault(delivery.id, now + PATIENCE) > now:
            self._wakeups.wake(self._shard)
            raise KeyOnItsWay
        self.settled(delivery)

    def settled(self, delivery: Deliver) -> None:
        """Stop waiting for a message that was read or cannot be read."""
        if not self._waiting:
            return
        queue = self._waiting.get((delivery.group, delivery.sender))
        if queue is not None:
            queue.pop(delivery.id, None)
            if not queue:
                del self._waiting[delivery.group, delivery.sender]
