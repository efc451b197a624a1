"""Pair rate of the Cloud API: one message in 6 seconds from a number to a recipient, after a burst a longer pause.

All messages to a recipient pass the owner of its shard, so the state in memory holds for any number of Webapps.
"""

from __future__ import annotations

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU

INTERVAL = 6.0  # seconds for each message
BURST = 45  # messages within the first `INTERVAL` after an idle time
REMEMBERED = 100_000  # recipients; the least recently used gets a full limit


class PairRate:
    """Pair rates of the recipients of one shard.

    After a burst of n messages the next one may be sent `INTERVAL` × n after the first message of the burst.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By recipient: monotonic time of the first message of the current burst, and its number of messages.
        self._bursts: LRU[str, tuple[float, int]] = LRU(REMEMBERED)

    def take(self, peer: str) -> float:
        """Count a message. Returns 0.0 if it may be sent, else the seconds until one may be."""
        now = self._clock.monotonic()
        started_at, count = self._bursts.get(peer) or (now, 0)
        paid_off_at = started_at + count * INTERVAL
        if now >= paid_off_at:
            self._bursts.put(peer, (now, 1))
            return 0.0
        if now < started_at + INTERVAL and count < BURST:
            self._bursts.put(peer, (started_at, count + 1))
            return 0.0
        return paid_off_at - now
