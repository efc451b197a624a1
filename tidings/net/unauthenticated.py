"""Limits for unauthenticated clients, per address and for all addresses together."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Sequence

from tidings.aio.clock import Clock
from tidings.aio.lru import LRU
from tidings.aio.token_buckets import TokenBuckets

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Limit that caused a refusal.
ADDRESS, ALL = "address", "all"
# Addresses remembered: those with token buckets that are not full, and those that have logged in.
REMEMBERED = 10_000
# Seconds that an address stays known after a login.
KNOWN = 3600.0
# Seconds that a connection has to log in before its slot may be given to another one.
GRACE = 1.0
# Addresses of a list of forwarders that are examined, from its end.
_MAX_HOPS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Limits for one address or for all addresses."""

    # Unauthenticated connections open at a time.
    connections: int
    # Tokens per second; 0 is unlimited.
    rate: float
    # Tokens of a full bucket.
    burst: float


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal of a connection or of work."""

    # `ADDRESS` or `ALL`.
    reason: str
    # Seconds.
    retry_after: float


class UnauthenticatedConnection:
    """One open unauthenticated connection."""

    __slots__ = ("_close", "busy", "counted", "key", "since", "slots")

    def __init__(
        self,
        key: str,
        *,
        counted: bool,
        slots: OrderedDict[UnauthenticatedConnection, None],
        since: float,
        close: Callable[[], None],
    ) -> None:
        self.key = key
        # Whether it counts towards the limit of its address.
        self.counted = counted
        self.slots = slots
        self.since = since
        # Whether a request of it is in progress, so that its slot is not given to another connection.
        self.busy = False
        self._close = close

    def close(self) -> None:
        self._close()


class UnauthenticatedClients:
    """Unauthenticated connections, and token buckets for the work that is done for them.

    An address is one of IPv4 or a /64 of IPv6. Once one of its connections has logged in, it is known for an hour.
    Known addresses use separate slots, as many as there are for all unknown addresses together, and each has a bucket
    as large as that of all unknown addresses, so that unknown clients cannot lock it out. When all slots are in use,
    the oldest connection gives its slot to the next one, unless all of them are busy or younger than a second.
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
        """each: limits of one address.
        together: limits of all addresses.
        trusted: proxies whose `X-Forwarded-For` is believed.
        remembered: addresses.
        """
        self._clock = clock
        self._each = each
        self._together = together
        self._trusted = tuple(trusted)
        self._of_each: TokenBuckets[str] = TokenBuckets(clock, rate=each.rate, burst=each.burst, remembered=remembered)
        self._of_each_known: TokenBuckets[str] = TokenBuckets(
            clock, rate=together.rate, burst=together.burst, remembered=remembered
        )
        self._of_all: TokenBuckets[str] = TokenBuckets(clock, rate=together.rate, burst=together.burst, remembered=1)
        self._unknown: OrderedDict[UnauthenticatedConnection, None] = OrderedDict()
        self._of_known: OrderedDict[UnauthenticatedConnection, None] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._known: LRU[str, float] = LRU(remembered)

    def __len__(self) -> int:
        return len(self._unknown) + len(self._of_known)

    def enter(self, host: str, close: Callable[[], None]) -> UnauthenticatedConnection | Refusal:
        """Return the slot of a connection, which it has until `mark_authenticated` or `left`, or the refusal.

        close: called when the slot is given to another connection; `left` has been applied by then.
        """
        key = key_of(host)
        known = self.is_known(host)
        counted = not (known or self.is_trusted(host))
        slots = self._of_known if known else self._unknown
        if counted and self._counts.get(key, 0) >= self._each.connections:
            return Refusal(ADDRESS, GRACE)
        if len(slots) >= self._together.connections and not self._replace(slots):
            return Refusal(ALL, GRACE)
        slot = UnauthenticatedConnection(key, counted=counted, slots=slots, since=self._clock.monotonic(), close=close)
        slots[slot] = None
        if counted:
            self._counts[key] = self._counts.get(key, 0) + 1
        return slot

    def replace(self) -> bool:
        """Close the oldest connection that may be replaced, to make room. Returns whether there was one."""
        return self._replace(self._unknown) or self._replace(self._of_known)

    def mark_authenticated(self, slot: UnauthenticatedConnection) -> None:
        """Record that the connection has logged in: its slot is released, and its address is known."""
        self.left(slot)
        self.know(slot.key)

    def know(self, host: str) -> None:
        """Record a login from this address."""
        self._known.put(key_of(host), self._clock.monotonic() + KNOWN)

    def left(self, slot: UnauthenticatedConnection) -> None:
        """Release the slot of a closed connection. Without effect the second time."""
        if slot not in slot.slots:
            return
        del slot.slots[slot]
        if slot.counted:
            count = self._counts[slot.key] - 1
            if count:
                self._counts[slot.key] = count
            else:
                del self._counts[slot.key]

    def take(self, host: str, cost: float = 1.0) -> Refusal | None:
        """Consume tokens for work to be done now. Returns a refusal, and consumes none, when there are too few."""
        wait, reason = self._wait(host, cost)
        if wait:
            return Refusal(reason, wait)
        self._add(host, cost)
        return None

    def reserve(self, host: str, cost: float = 1.0) -> float:
        """Consume tokens in any case. Returns the seconds to wait until the work may be done.

        For work that each connection does one at a time: the number of connections bounds the wait.
        """
        wait, _ = self._wait(host, cost)
        self._add(host, cost)
        return wait

    def refund(self, host: str, cost: float = 1.0) -> None:
        """Refund the tokens of a `take` or `reserve` after a login."""
        self._add(host, -cost)

    def is_known(self, host: str) -> bool:
        """Return whether a connection from this address has logged in within the last hour."""
        until = self._known.get(key_of(host))
        return until is not None and self._clock.monotonic() < until

    def is_trusted(self, host: str) -> bool:
        """Return whether this is the address of a trusted proxy."""
        return bool(self._trusted) and _is_within(host, self._trusted)

    def speaks_for(self, host: str, forwarded: bytes | None) -> str:
        """Return the address of the client that a request comes from.

        This is the peer, or, if the peer is a trusted proxy, the last address of `X-Forwarded-For` that is not a
        trusted proxy. Without such an address it is the last proxy that was found.
        """
        if forwarded is None or not self.is_trusted(host):
            return host
        for raw in reversed(forwarded.decode("latin-1").rsplit(",", _MAX_HOPS)[-_MAX_HOPS:]):
            hop = raw.strip()
            if hop.count(":") == 1 or hop.startswith("["):
                # With a port, or in brackets.
                hop = hop.removeprefix("[").partition("]" if hop.startswith("[") else ":")[0]
            if _parse(hop) is None:
                return host
            if not self.is_trusted(hop):
                return hop
            host = hop
        return host

    def _replace(self, slots: OrderedDict[UnauthenticatedConnection, None]) -> bool:
        limit = self._clock.monotonic() - GRACE
        for slot in slots:
            if slot.since > limit:
                return False
            if not slot.busy:
                self.left(slot)
                slot.close()
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
    """Return the key that stands for an address: an IPv4 address, also if written as IPv6, or a /64 of IPv6.

    Text that is not an address is its own key.
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
