"""Requests for missing sender keys, and limits on answering those of others."""

from __future__ import annotations

import logging

from prometheus_client import Counter

from coreapp.groups.awaited_keys import AwaitedKeys
from coreapp.groups.key_messages import KeyMessages
from tidings.aio.clock import Clock
from tidings.aio.use_limit import UseLimit
from tidings.client import sender_keys
from tidings.wire.content import encode_sender_key_request

log = logging.getLogger(__name__)

REQUESTS = Counter("tidings_sender_key_requests_total", "Requests for sender keys", ["direction"])

REMEMBERED = 10_000  # participants; an evicted one is asked or answered sooner


class KeyRequests:
    """Key requests of one account, in both directions."""

    def __init__(self, key_messages: KeyMessages, clock: Clock, awaited: AwaitedKeys) -> None:
        """Create the requests of a shard.

        awaited: messages whose key is not requested yet, because it may still arrive
        """
        self.awaited = awaited
        self._key_messages = key_messages
        self._requests: UseLimit[tuple[str, str]] = UseLimit(
            clock, limit=1, period=sender_keys.ASK_SECONDS, remembered=REMEMBERED
        )
        self._answers: UseLimit[tuple[str, str]] = UseLimit(
            clock, limit=1, period=sender_keys.ASK_SECONDS, remembered=REMEMBERED
        )

    def ask(self, group_id: str, author: str) -> None:
        """Request the key of a message that we cannot decrypt, unless it was requested recently."""
        if self._requests.take((group_id, author)):
            log.info("sender_key.asked_for", extra={"group": group_id, "from": author})
            REQUESTS.labels("sent").inc()
            self._key_messages.post([self._key_messages.write(author, encode_sender_key_request(group_id))])

    def may_answer(self, group_id: str, member: str) -> bool:
        """Return whether a participant's request for our key is answered, and count it against the limit."""
        REQUESTS.labels("received").inc()
        return self._answers.take((group_id, member))
