"""Rate limits of one device's calls to the directory, for others' one-time keys, its own keys and blocks, groups and
blobs.
"""

from __future__ import annotations

from prometheus_client import Counter

from network.settings import DeviceRateLimits
from tidings.aio.clock import Clock
from tidings.aio.token_buckets import TokenBuckets

LIMITED = Counter("tidings_network_rate_limited_total", "Calls of devices refused by a rate limit", ["call"])

DAY = 86400.0
# Factor by which the limits of a business exceed those of other devices.
BUSINESS = 10
# Uploads of keys, each with up to 102 signatures to verify, and changes of blocks, each announced to all nodes and to
# their caches: per second, and at once.
KEY_RATE, KEY_BURST = 1.0, 100
BLOCK_RATE, BLOCK_BURST = 1.0, 1_000
# Devices remembered, and pairs of a fetching number and a fetched number; about 200 bytes each.
DEVICES = 20_000
PAIRS = 100_000


class DeviceRateLimiter:
    """Token buckets by number."""

    def __init__(self, rate_limits: DeviceRateLimits, clock: Clock) -> None:
        self._businesses = rate_limits.businesses
        self._one_time: TokenBuckets[tuple[str, str]] = TokenBuckets(
            clock, rate=rate_limits.one_time / DAY, burst=rate_limits.one_time, remembered=PAIRS
        )
        self._calls: dict[str, TokenBuckets[str]] = {
            call: TokenBuckets(clock, rate=rate, burst=burst, remembered=DEVICES)
            for call, rate, burst in (
                ("fetch", rate_limits.fetch_rate, rate_limits.fetch_burst),
                ("check", rate_limits.check_rate, rate_limits.check_burst),
                ("group", rate_limits.group_rate, rate_limits.group_burst),
                ("blob", rate_limits.blob_rate, rate_limits.blob_burst),
                ("keys", KEY_RATE, KEY_BURST),
                ("block", BLOCK_RATE, BLOCK_BURST),
            )
        }

    def weight_of(self, number: str) -> int:
        """Return the factor by which this number's limits are multiplied."""
        return BUSINESS if number in self._businesses else 1

    def take(self, call: str, number: str, count: int = 1) -> float:
        """Consume tokens for a call; return the seconds to wait, 0 when it may be made now.

        call: `fetch`, `check`, `group`, `blob`, `keys` or `block`.
        count: items of the call.
        """
        wait = self._calls[call].take(number, count / self.weight_of(number))
        if wait:
            LIMITED.labels(call).inc()
        return wait

    def take_one_time(self, fetcher: str, target: str) -> bool:
        """Consume a token for one of the target's one-time keys; return whether the fetcher may have one."""
        wait = self._one_time.take((fetcher, target))
        if wait:
            LIMITED.labels("one_time").inc()
        return not wait

    def refund_one_time(self, fetcher: str, target: str) -> None:
        """Refund the token: the target had no one-time key left."""
        self._one_time.add((fetcher, target), -1.0)
