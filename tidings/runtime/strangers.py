"""Bounds on what those who have not logged in may have: one address, and all addresses together."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Sequence

from tidings.runtime.clock import Clock
from tidings.runtime.lru import LRU
from tidings.runtime.token_buckets import TokenBuckets

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Which bound was the reason of a refusal.
ADDRESS, ALL = "address", "all"
# Addresses that are remembered: their token buckets, and that one of their connections has logged in.
REMEMBERED = 10_000
# Seconds that an address stays known after a login.
KNOWN = 3600.0
# Seconds that a connection has to prove something before another may have its place.
GRACE = 1.0
# Addresses of a list of forwarders that are looked at, from the end.
_MAX_HOPS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """connections: open at a time that have proved nothing; rate: tokens a second, 0 is unlimited; burst: at once."""

    connections: int
    rate: float
    burst: float


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """reason: `ADDRESS` or `ALL`; retry_after: seconds."""

    reason: str
    retry_after: float


class Stranger:
    """One open connection that has proved nothing.

    busy: something that it asked for is under way, so its place is not given to another.
    """

    __slots__ = ("_close", "busy", "counted", "key", "places", "since")

    def __init__(
        self,
        key: str,
        *,
        counted: bool,
        places: OrderedDict[Stranger, None],
        since: float,
        close: Callable[[], None],
    ) -> None:
        self.key = key
        self.counted = counted
        self.places = places
        self.since = since
        self.busy = False
        self._close = close

    def close(self) -> None:
        self._close()


class Strangers:
    """Connections that have proved nothing, and token buckets of what is done for them.

    An address is one of IPv4 or a /64 of IPv6. Once one of its connections has logged in it is known for an hour: its
    other connections have places of their own, as many as all strangers have, and it has a bucket of its own, as large
    as that of all strangers, so none of these keeps it out. When all places are used up, the oldest connection makes
    room for the next, unless all of them are busy or younger than a second.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        each: Bounds,
        together: Bounds,
        trusted: Sequence[Network] = (),
        remembered: int = REMEMBERED,
    ) -> None:
        """each: of one address; together: of all; trusted: proxies that speak for others."""
        self._clock = clock
        self._each = each
        self._together = together
        self._trusted = tuple(trusted)
        self._of_each: TokenBuckets[str] = TokenBuckets(clock, rate=each.rate, burst=each.burst, remembered=remembered)
        self._of_each_known: TokenBuckets[str] = TokenBuckets(
            clock, rate=together.rate, burst=together.burst, remembered=remembered
        )
        self._of_all: TokenBuckets[str] = TokenBuckets(clock, rate=together.rate, burst=together.burst, remembered=1)
        self._unknown: OrderedDict[Stranger, None] = OrderedDict()
        self._of_known: OrderedDict[Stranger, None] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._known: LRU[str, float] = LRU(remembered)

    def __len__(self) -> int:
        return len(self._unknown) + len(self._of_known)

    def enter(self, host: str, close: Callable[[], None]) -> Stranger | Refusal:
        """A place for a connection, until `proved` or `left`.

        close: called when the place is given to another; the stranger has left by then.
        """
        key = key_of(host)
        known = self.is_known(host)
        counted = not (known or self.is_trusted(host))
        places = self._of_known if known else self._unknown
        if counted and self._counts.get(key, 0) >= self._each.connections:
            return Refusal(ADDRESS, GRACE)
        if len(places) >= self._together.connections and not self._replace(places):
            return Refusal(ALL, GRACE)
        stranger = Stranger(key, counted=counted, places=places, since=self._clock.monotonic(), close=close)
        places[stranger] = None
        if counted:
            self._counts[key] = self._counts.get(key, 0) + 1
        return stranger

    def replace(self) -> bool:
        """Have the oldest connection that may go make room for another of any kind; false when none may."""
        return self._replace(self._unknown) or self._replace(self._of_known)

    def proved(self, stranger: Stranger) -> None:
        """The connection has logged in; it is no stranger's any more, and its address is known."""
        self.left(stranger)
        self.know(stranger.key)

    def know(self, host: str) -> None:
        """Somebody has logged in from this address."""
        self._known.put(key_of(host), self._clock.monotonic() + KNOWN)

    def left(self, stranger: Stranger) -> None:
        """The connection is closed. Without effect on one that has left before."""
        if stranger not in stranger.places:
            return
        del stranger.places[stranger]
        if stranger.counted:
            count = self._counts[stranger.key] - 1
            if count:
                self._counts[stranger.key] = count
            else:
                del self._counts[stranger.key]

    def take(self, host: str, cost: float = 1.0) -> Refusal | None:
        """Take tokens for something that is to be done now; none are taken when there are too few."""
        wait, reason = self._wait(host, cost)
        if wait:
            return Refusal(reason, wait)
        self._add(host, cost)
        return None

    def reserve(self, host: str, cost: float = 1.0) -> float:
        """Take tokens in any case; returns the seconds to wait until it may be done.

        For what each connection does one at a time: only so many can be waiting, so none waits for long.
        """
        wait, _ = self._wait(host, cost)
        self._add(host, cost)
        return wait

    def give_back(self, host: str, cost: float = 1.0) -> None:
        """Undo a `take` or `reserve`: whoever asked has logged in."""
        self._add(host, -cost)

    def is_known(self, host: str) -> bool:
        """Has a connection of this address logged in within the hour?"""
        until = self._known.get(key_of(host))
        return until is not None and self._clock.monotonic() < until

    def is_trusted(self, host: str) -> bool:
        """Is this a proxy that speaks for others?"""
        return bool(self._trusted) and _is_within(host, self._trusted)

    def speaks_for(self, host: str, forwarded: bytes | None) -> str:
        """Whose request it is: the peer's own, or, if that is a trusted proxy, the last address of `X-Forwarded-For`
        that is none. The proxy's where it does not say."""
        if forwarded is None or not self.is_trusted(host):
            return host
        for raw in reversed(forwarded.decode("latin-1").rsplit(",", _MAX_HOPS)[-_MAX_HOPS:]):
            hop = raw.strip()
            if hop.count(":") == 1 or hop.startswith("["):
                # With a port, or as it stands in a URL.
                hop = hop.removeprefix("[").partition("]" if hop.startswith("[") else ":")[0]
            if _parse(hop) is None:
                return host
            if not self.is_trusted(hop):
                return hop
            host = hop
        return host

    def _replace(self, places: OrderedDict[Stranger, None]) -> bool:
        limit = self._clock.monotonic() - GRACE
        for stranger in places:
            if stranger.since > limit:
                return False
            if not stranger.busy:
                self.left(stranger)
                stranger.close()
                return True
        return False

    def _wait(self, host: str, cost: float) -> tuple[float, str]:
        if self.is_known(host):
            return self._of_each_known.wait(key_of(host), cost), ADDRESS
        of_all = self._of_all.wait(ALL, cost)
        of_each = 0.0 if self.is_trusted(host) else self._of_each.wait(key_of(host), cost)
        return (of_each, ADDRESS) if of_each >= of_all else (of_all, ALL)

    def _add(self, host: str, cost: float) -> None:
        if self.is_known(host):
            self._of_each_known.add(key_of(host), cost)
            return
        self._of_all.add(ALL, cost)
        if not self.is_trusted(host):
            self._of_each.add(key_of(host), cost)


@functools.lru_cache(1024)
def key_of(host: str) -> str:
    """What counts as one address: an IPv4 address, also one that is written as IPv6, or a /64 of IPv6.

    What is no address is a key of its own.
    """
    address = _parse(host)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return str(address or host[:64])


def _parse(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@functools.lru_cache(1024)
def _is_within(host: str, networks: tuple[Network, ...]) -> bool:
    address = _parse(host)
    return address is not None and any(address in network for network in networks)
