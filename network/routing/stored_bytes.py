"""Bytes that each sender has stored for recipients who have not fetched them: a token bucket per sender, for all
mailboxes.

The quotas of mailboxes bound one sender's usage of one mailbox. This bounds the number of mailboxes that it can fill.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from network.routing.quotas import QuotaRefusal
from network.settings import Quotas
from tidings.aio.clock import Clock
from tidings.aio.token_buckets import TokenBuckets
from tidings.wire import device

# Senders remembered, about 200 bytes each.
REMEMBERED = 20_000
# Longest retry time in seconds of a refused sender: its recipients may have connected by then.
LONGEST = 60.0


class StoredBytes:
    """Stored bytes by sender. They count until the recipient fetches them or the bucket's rate has refilled them.

    Bytes are counted when they are stored, not when they are sent, so envelopes to connected devices cost nothing.
    Envelopes that are being stored may exceed the limit.
    """

    def __init__(self, quotas: Quotas, clock: Clock, weight_of: Callable[[str], int]) -> None:
        """weight_of: return the factor by which a number's limit is multiplied."""
        self._weight_of = weight_of
        self._buckets: TokenBuckets[str] = TokenBuckets(
            clock, rate=quotas.stored_rate, burst=quotas.stored_bytes, remembered=REMEMBERED
        )
        # Senders whose bucket was exhausted when bytes were stored; `refusal_of` checks again.
        self.empty: dict[str, None] = {}

    def add(self, sender: str, size: int) -> None:
        """Count `size` stored bytes."""
        self._buckets.add(sender, size / self._weight_of(sender))
        if self._buckets.wait(sender):
            if len(self.empty) >= REMEMBERED:
                self.empty.clear()
            self.empty[sender] = None

    def remove(self, sender: str, size: int) -> None:
        """Refund `size` bytes that the recipient has fetched."""
        self._buckets.add(sender, -size / self._weight_of(sender))

    def refusal_of(self, sender: str) -> QuotaRefusal | None:
        """Return the refusal of an `empty` sender's next envelope; `None` when it may pass again."""
        wait = min(self._buckets.wait(sender), LONGEST)
        if wait:
            return QuotaRefusal(
                device.RATE_LIMITED, "too much of this sender's is stored for recipients", math.ceil(wait)
            )
        self.empty.pop(sender, None)
        return None
