"""Group messages whose key may be on its way, by the session with their author, which may be in another shard."""

from __future__ import annotations

from coreapp.context import ShardContext
from tidings.wire.device import Deliver

# Seconds that a message waits for its key. The author has sent that first, so it takes as long as a commit and a look
# into the database.
PATIENCE = 5.0


class KeyOnItsWay(Exception):
    """Try this message again a little later; it stays unacknowledged."""


class AwaitedKeys:
    """The messages that wait. At most as many as the network leaves unacknowledged."""

    def __init__(self, context: ShardContext) -> None:
        self._owns = context.owns
        self._bells = context.shared.bells
        self._shard = context.shard
        self._clock = context.clock
        # By group and author, in the order in which they came: until when each waits.
        self._waiting: dict[tuple[str, str], dict[str, float]] = {}

    def require_turn(self, delivery: Deliver) -> None:
        """Raises `KeyOnItsWay` for a message behind one of the same author that waits."""
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
        """There is no key for this message. Raises `KeyOnItsWay` while one may come."""
        if self._owns(delivery.sender):
            return
        queue = self._waiting.setdefault((delivery.group, delivery.sender), {})
        now = self._clock.monotonic()
        if queue.setdefault(delivery.id, now + PATIENCE) > now:
            self._bells.ring(self._shard)
            raise KeyOnItsWay
        self.settled(delivery)

    def settled(self, delivery: Deliver) -> None:
        """It was read, or cannot be."""
        if not self._waiting:
            return
        queue = self._waiting.get((delivery.group, delivery.sender))
        if queue is not None:
            queue.pop(delivery.id, None)
            if not queue:
                del self._waiting[delivery.group, delivery.sender]
