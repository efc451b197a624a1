"""Rate limits by address: requests for registration codes, and registrations that prove nothing."""

from __future__ import annotations

import math

from prometheus_client import Counter

from network.errors import TooMany
from tidings.aio.clock import Clock
from tidings.aio.token_buckets import TokenBuckets
from tidings.net.unauthenticated import REMEMBERED, Bounds, Network, UnauthenticatedClients, key_of

REFUSED = Counter(
    "tidings_network_codes_refused_total", "Requests for codes, and tries of codes, that were refused", ["what"]
)

# Codes that one address may request at once, and seconds until it may request another.
CODES_EACH, SECONDS_EACH = 20, 30
# Registrations without proof that one address may try at once, and seconds until it may try another.
TRIES_EACH, TRY_SECONDS_EACH = 10, 60

for _what in ("code", "try"):
    REFUSED.labels(_what)


class CodeRateLimits:
    """Token buckets by address, in memory: a restart fills them. An IPv6 address counts as its /64.

    Addresses share no bucket, so one address cannot exhaust the limit of another. The limit on guesses for one number,
    from all addresses together, is stored with the number (`network.devices.codes`).
    """

    def __init__(self, clock: Clock, trusted: tuple[Network, ...] = ()) -> None:
        """trusted: proxies whose `X-Forwarded-For` is believed."""
        nothing = Bounds(connections=0, rate=0, burst=0)
        self._proxies = UnauthenticatedClients(clock, each=nothing, together=nothing, trusted=trusted, remembered=1)
        self._codes = _buckets(clock, CODES_EACH, SECONDS_EACH)
        self._tries = _buckets(clock, TRIES_EACH, TRY_SECONDS_EACH)

    def origin_of(self, peer: str, forwarded: str | None) -> str:
        """Return the requesting address: the peer, or the one that a trusted proxy names in `X-Forwarded-For`."""
        host = self._proxies.speaks_for(peer, forwarded.encode("latin-1", "replace") if forwarded else None)
        return key_of(host)

    def take_code(self, origin: str) -> None:
        """Count one code request. Raises `TooMany`."""
        _take(self._codes, "code", origin, "codes")

    def take_try(self, origin: str) -> None:
        """Count one try of a code. Raises `TooMany`."""
        _take(self._tries, "try", origin, "tries of codes")

    def was_right(self, origin: str) -> None:
        """Refund the last try, which was right."""
        self._tries.add(origin, -1.0)


def _buckets(clock: Clock, burst: int, seconds: int) -> TokenBuckets[str]:
    return TokenBuckets(clock, rate=1 / seconds, burst=burst, remembered=REMEMBERED)


def _take(buckets: TokenBuckets[str], what: str, origin: str, kind: str) -> None:
    wait = buckets.take(origin)
    if wait:
        REFUSED.labels(what).inc()
        raise TooMany(f"too many {kind} from this address", retry_after=math.ceil(wait))
