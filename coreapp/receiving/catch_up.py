"""Catch-up: the deliveries that waited for an owner of the shard are handled at a pace.

Thousands of receipts may have waited. Handled at once, each batch of them makes a transaction of over 1,000 rows, and
the requests to all shards of the process wait for it. A delivery waited if the network accepted it before the shard was
opened. They precede the new ones, so the first new delivery ends the catch-up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coreapp.pace import TICK, Pace
from tidings.aio.clock import Clock
from tidings.wire.device import Deliver

# Seconds after the opening of a shard: the longest catch-up, also if the network's clock is behind ours.
SECONDS = 10.0
# Message ids per second: the rate at first, which is also the lowest, and the highest.
LEAST_RATE, MOST_RATE = 300.0, 1_500.0


class CatchUp:
    """Limits the rate of one shard's deliveries that were accepted before its creation."""

    def __init__(self, clock: Clock) -> None:
        self._loop = asyncio.get_running_loop()
        self._opened_at = clock.now_ms()
        self._ends_at = self._loop.time() + SECONDS
        self._tick_at = self._loop.time()
        self._pace = Pace(LEAST_RATE, LEAST_RATE, MOST_RATE)
        # Ids that may be handled before the next tick; negative after a delivery with many.
        self._room = 0

    def end(self) -> None:
        """Handle everything from the next tick on."""
        self._ends_at = min(self._ends_at, self._loop.time())

    async def due(self, deliveries: Sequence[Deliver]) -> Sequence[Deliver]:
        """Return the first deliveries that are due, at least one. Waits for the next tick if this one has no room.

        deliveries: those that are not handled yet, at least one, in their order
        """
        if deliveries[0].timestamp >= self._opened_at:
            self.end()
        while self._room <= 0 and self._loop.time() < self._ends_at:
            left = self._tick_at - self._loop.time()
            if left > 0:
                await asyncio.sleep(left)
            late = self._loop.time() - self._tick_at if left > 0 else 0.0
            self._tick_at = self._loop.time() + TICK
            self._room += self._pace.portion(late)
        if self._loop.time() >= self._ends_at:
            return deliveries
        for position, delivery in enumerate(deliveries, 1):
            self._room -= max(1, len(delivery.refs))
            if self._room <= 0:
                return deliveries[:position]
        return deliveries
