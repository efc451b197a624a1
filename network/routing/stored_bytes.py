"""Bytes that each sender has had stored for recipients who have not fetched them: a bucket for each, of all mailboxes.

The quotas of mailboxes bound what one sender has in one of them; this bounds how many of them it can fill.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from network.routing.quotas import Refusal
from network.settings import Quotas
from tidings.runtime.clock import Clock
from tidings.runtime.token_buckets import TokenBuckets
from tidings.wire import device

# Senders that are remembered, about 200 bytes each.
REMEMBERED = 20_000
# Seconds after which whoever has had too much stored tries again at the latest: its recipients may have come.
LONGEST = 60.0


class StoredBytes:
    """What was stored counts until its recipient has it, or it was paid off at the rate. It is counted when it is
    stored, not when it is sent, so that what goes to devices that are there costs nothing; what is on its way into the
    mailbox goes beyond the limit."""

    def __init__(self, quotas: Quotas, clock: Clock, weight_of: Callable[[str], int]) -> None:
        """weight_of(): how many times the allowance of others a number has."""
        self._weight_of = weight_of
        self._buckets: TokenBuckets[str] = TokenBuckets(
            clock, rate=quotas.stored_rate, burst=quotas.stored_bytes, remembered=REMEMBERED
        )
        # Those that had none left when something was stored; `wait` looks again.
        self.empty: dict[str, None] = {}

    def add(self, sender: str, size: int) -> None:
        """So many bytes were stored."""
        self._buckets.add(sender, size / self._weight_of(sender))
        if self._buckets.wait(sender):
            if len(self.empty) >= REMEMBERED:
                self.empty.clear()
            self.empty[sender] = None

    def remove(self, sender: str, size: int) -> None:
        """A recipient has them."""
        self._buckets.add(sender, -size / self._weight_of(sender))

    def refusal_of(self, sender: str) -> Refusal | None:
        """Of the next envelope of one that is `empty`; `None` when it may pass again."""
        wait = min(self._buckets.wait(sender), LONGEST)
        if wait:
            return Refusal(device.RATE_LIMITED, "too much of this sender's is stored for recipients", math.ceil(wait))
        self.empty.pop(sender, None)
        return None
