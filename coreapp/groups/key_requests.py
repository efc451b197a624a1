"""Sender keys that the business lacks: messages that wait for one, requests for it, and limits on sending ours."""

from __future__ import annotations

import dataclasses
import logging

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.groups.key_messages import KeyMessages
from tidings.aio.use_limit import UseLimit
from tidings.client import sender_keys
from tidings.wire.content import encode_sender_key_request
from tidings.wire.device import Deliver

log = logging.getLogger(__name__)

REQUESTS = Counter("tidings_sender_key_requests_total", "Requests for sender keys", ["direction"])

REMEMBERED = 10_000  # participants; an evicted one gets a request or a response before the hour is over
# Seconds that a message waits for its key. The author sent the key first, so it takes as long as a commit and a read of
# the database.
KEY_SECONDS = 5.0


class SenderKeyPending(Exception):
    """The message's key may still arrive: try again a little later. The message stays unacknowledged."""


@dataclasses.dataclass(eq=False, repr=False)
class KeyRequests:
    """Key requests of one account, in both directions.

    Messages whose key may still arrive in the session with their author, which may belong to another shard, wait first;
    at most as many as the network leaves unacknowledged.
    """

    context: ShardContext
    key_messages: KeyMessages

    def __post_init__(self) -> None:
        clock, period = self.context.clock, sender_keys.KEY_REQUEST_SECONDS
        self._requests: UseLimit[tuple[str, str]] = UseLimit(clock, limit=1, period=period, remembered=REMEMBERED)
        self._keys_sent: UseLimit[tuple[str, str]] = UseLimit(clock, limit=1, period=period, remembered=REMEMBERED)
        # By group and author: the waiting messages in order of arrival, each with the end of its wait in monotonic
        # seconds.
        self._waiting: dict[tuple[str, str], dict[str, float]] = {}

    def request_key(self, group_id: str, author: str) -> None:
        """Request the key of a message that we cannot decrypt, unless it was requested recently."""
        if self._requests.take((group_id, author)):
            log.info("sender_key.requested", extra={"group": group_id, "from": author})
            REQUESTS.labels("sent").inc()
            self.key_messages.post([self.key_messages.write(author, encode_sender_key_request(group_id))])

    def may_send_key(self, group_id: str, member: str) -> bool:
        """Return whether a participant's request for our key is granted, and count it against the limit."""
        REQUESTS.labels("received").inc()
        return self._keys_sent.take((group_id, member))

    def require_first(self, delivery: Deliver) -> None:
        """Raise `SenderKeyPending` for a message behind a waiting one of the same author."""
        queue = self._waiting.get((delivery.group, delivery.sender))
        if not queue:
            return
        now = self.context.clock.monotonic()
        for message_id, until in list(queue.items()):
            if message_id == delivery.id:
                return
            if until > now:
                queue.setdefault(delivery.id, now + KEY_SECONDS)
                raise SenderKeyPending
            del queue[message_id]

    def lacking(self, delivery: Deliver) -> None:
        """Handle a message without a key. Raises `SenderKeyPending` while the key may still arrive."""
        if self.context.owns(delivery.sender):
            return
        queue = self._waiting.setdefault((delivery.group, delivery.sender), {})
        now = self.context.clock.monotonic()
        if queue.setdefault(delivery.id, now + KEY_SECONDS) > now:
            self.context.shared.wakeups.wake(self.context.shard)
            raise SenderKeyPending
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
