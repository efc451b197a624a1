"""Limits for unauthenticated clients of HTTP, of live connections and of links."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import ipaddress
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from prometheus_client import Counter

from tidings.aio.clock import Clock, SystemClock
from tidings.aio.lru import LRU
from tidings.aio.token_buckets import TokenBuckets

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

log = logging.getLogger(__name__)

LINKS_REFUSED = Counter(
    "tidings_link_refused_total", "Connections to the link that ended before authentication", ["why"]
)
# Limit that caused a refusal.
ADDRESS, ALL = "address", "all"
# Reasons for the end of an unauthenticated connection.
EVICTED, LATE, WRONG_KEY, NO_HELLO = "evicted", "late", "wrong_key", "no_hello"
for _why in (WRONG_KEY, NO_HELLO, LATE, EVICTED):
    LINKS_REFUSED.labels(_why)
# Addresses remembered: those with token buckets that are not full, and those that have logged in.
REMEMBERED = 10_000
# Seconds that an address stays known after a login.
KNOWN = 3600.0
# Seconds that a connection has to log in before its slot may be given to another one.
GRACE = 1.0
# Seconds between two checks of a late connection with a login in progress.
LATE_SECONDS = 1.0
# Bytes: longest frame of an unauthenticated peer, and unread data above which nothing more is read from it.
FRAME, UNREAD = 4 * 1024, 16 * 1024
# Connections to the link before the key at a time; one more evicts the oldest. A Webapp or node sends the key in its
# first bytes.
LINKS = 64
LINK_SECONDS = 10.0  # seconds until such a connection is closed
NOTE_SECONDS = 10.0  # seconds between two log lines about wrong keys
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


@dataclasses.dataclass(slots=True, eq=False)
class UnauthenticatedConnection:
    """One open unauthenticated connection: its slot, and the tokens that it has consumed."""

    clients: UnauthenticatedClients
    # Address of the client, and the key that stands for it.
    host: str
    key: str
    # Whether it counts towards the limit of its address.
    counted: bool
    slots: OrderedDict[UnauthenticatedConnection, None]
    # Monotonic seconds.
    since: float
    # Called when its slot is given to another connection.
    close: Callable[[], object]
    # Whether a request of it is in progress, so that its slot is not given to another connection.
    busy: bool = False
    # Tokens to be refunded at its login.
    consumed: float = 0.0
    # Called at its login; `None` for no call.
    on_login: Callable[[], object] | None = None

    def reserve(self, cost: float = 1.0) -> float:
        """Consume tokens, on credit if necessary. Returns the seconds until they are available."""
        self.consumed += cost
        return self.clients.reserve(self.host, cost)

    def expire(self, seconds: float, close: Callable[[], object]) -> None:
        """Release its slot and call `close`, unless it logs in within `seconds`."""
        asyncio.get_running_loop().call_later(seconds, self._end_late, close)

    def _end_late(self, close: Callable[[], object]) -> None:
        if self not in self.slots:
            return
        if self.busy:
            self.expire(LATE_SECONDS, close)
            return
        self.release()
        self.clients.count(LATE)
        close()

    def mark_authenticated(self) -> None:
        """Record its login: its slot is released, its tokens are refunded, and its address is known."""
        # Refunded first, because known addresses have other buckets.
        self.clients.refund(self.host, self.consumed)
        self.clients.mark_authenticated(self)
        if self.on_login is not None:
            self.on_login()

    def release(self) -> None:
        """Release its slot because it is closed. Without effect the second time."""
        self.clients.release(self)


@dataclasses.dataclass(eq=False, repr=False)
class UnauthenticatedClients:
    """Unauthenticated connections, and token buckets for the work that is done for them.

    An address is one of IPv4 or a /64 of IPv6. Once one of its connections has logged in, it is known for an hour.
    Unknown clients cannot lock known addresses out: these have separate slots, as many as all unknown addresses have
    together, and each has a bucket as large as that of all unknown addresses. When all slots are in use, the oldest
    connection gives its slot to the next one, unless all of them are busy or younger than a second.
    """

    clock: Clock
    _: dataclasses.KW_ONLY
    each: Bounds  # limits of one address
    together: Bounds  # limits of all addresses
    trusted: Sequence[Network] = ()  # proxies whose `X-Forwarded-For` is believed
    remembered: int = REMEMBERED  # addresses
    grace: float = GRACE  # seconds that a connection has to log in before its slot may be given to another one
    # counts connections that `admit` refused and connections that were closed, by reason
    refused: Counter | None = None

    def __post_init__(self) -> None:
        self._trusted = tuple(self.trusted)
        self._of_each: TokenBuckets[str] = TokenBuckets(
            self.clock, rate=self.each.rate, burst=self.each.burst, remembered=self.remembered
        )
        self._of_each_known: TokenBuckets[str] = TokenBuckets(
            self.clock, rate=self.together.rate, burst=self.together.burst, remembered=self.remembered
        )
        self._of_all: TokenBuckets[str] = TokenBuckets(
            self.clock, rate=self.together.rate, burst=self.together.burst, remembered=1
        )
        self._unknown: OrderedDict[UnauthenticatedConnection, None] = OrderedDict()
        self._of_known: OrderedDict[UnauthenticatedConnection, None] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._known: LRU[str, float] = LRU(self.remembered)

    def __len__(self) -> int:
        return len(self._unknown) + len(self._of_known)

    def admit(self, host: str, cost: float = 0.0) -> UnauthenticatedConnection | None:
        """Return the slot of a connection that costs tokens; `None` when no slot or too few tokens are available."""
        found = self.take(host, cost) if cost else None
        slot = found or self.take_slot(host, lambda: None)
        if isinstance(slot, Refusal):
            self.count(slot.reason)
            return None
        slot.consumed = cost
        return slot

    def count(self, why: str) -> None:
        """Count a connection that was refused or closed for this reason."""
        if self.refused is not None:
            self.refused.labels(why).inc()

    def take_slot(self, host: str, close: Callable[[], object]) -> UnauthenticatedConnection | Refusal:
        """Return the slot of a connection, which it has until `mark_authenticated` or `release`, or the refusal.

        close: called when the slot is given to another connection; `release` has been applied by then.
        """
        key = key_of(host)
        known = self.is_known(host)
        counted = not (known or self.is_trusted(host))
        slots = self._of_known if known else self._unknown
        if counted and self._counts.get(key, 0) >= self.each.connections:
            return Refusal(ADDRESS, self.grace)
        if len(slots) >= self.together.connections and not self._replace(slots):
            return Refusal(ALL, self.grace)
        slot = UnauthenticatedConnection(self, host, key, counted, slots, self.clock.monotonic(), close)
        slots[slot] = None
        if counted:
            self._counts[key] = self._counts.get(key, 0) + 1
        return slot

    def replace(self) -> bool:
        """Close the oldest connection that may be replaced, to make room. Returns whether there was one."""
        return self._replace(self._unknown) or self._replace(self._of_known)

    def mark_authenticated(self, slot: UnauthenticatedConnection) -> None:
        """Record that the connection has logged in: its slot is released, and its address is known."""
        self.release(slot)
        self.mark_known(slot.key)

    def mark_known(self, host: str) -> None:
        """Record a login from this address."""
        self._known.put(key_of(host), self.clock.monotonic() + KNOWN)

    def release(self, slot: UnauthenticatedConnection) -> None:
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
        return until is not None and self.clock.monotonic() < until

    def is_trusted(self, host: str) -> bool:
        """Return whether this is the address of a trusted proxy."""
        return is_within(host, self._trusted)

    def client_of(self, host: str, forwarded: bytes | None) -> str:
        """Return the address of the client that a request comes from, as `client_of`."""
        return client_of(host, forwarded, self._trusted)

    def _replace(self, slots: OrderedDict[UnauthenticatedConnection, None]) -> bool:
        limit = self.clock.monotonic() - self.grace
        for slot in slots:
            if slot.since > limit:
                return False
            if not slot.busy:
                self.release(slot)
                self.count(EVICTED)
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


class LinkConnection(Protocol):
    """Connection to the link."""

    @property
    def host(self) -> str: ...

    @property
    def peer(self) -> str: ...

    def limit(self, *, frame: int = ..., unread: int = ...) -> None:
        """Change its limits; without arguments, to those of an authenticated peer."""

    def close(self, reason: str) -> None: ...

    def abort(self, reason: str) -> None: ...


class UnauthenticatedLinks:
    """Connections to the link of this process that have not sent the right key."""

    def __init__(self, limit: int = LINKS, seconds: float = LINK_SECONDS) -> None:
        """limit: connections at a time; one more evicts the oldest. seconds: until a connection is closed."""
        # Addresses have no limit: all clients of the link may be on one machine.
        self._clients = UnauthenticatedClients(
            SystemClock(),
            each=Bounds(limit + 1, 0, 0),
            together=Bounds(limit, 0, 0),
            grace=0.0,
            refused=LINKS_REFUSED,
        )
        self._seconds = seconds
        self._slots: dict[LinkConnection, UnauthenticatedConnection] = {}
        self._noted_at = -math.inf

    def __len__(self) -> int:
        return len(self._clients)

    def opened(self, connection: LinkConnection) -> None:
        """Limit a new connection; evict the oldest when there are too many."""
        slot = self._clients.take_slot(connection.host, functools.partial(connection.abort, EVICTED))
        assert isinstance(slot, UnauthenticatedConnection)
        slot.expire(self._seconds, functools.partial(connection.abort, LATE))
        connection.limit(frame=FRAME, unread=UNREAD)
        self._slots[connection] = slot

    def authenticated(self, connection: LinkConnection) -> None:
        """Lift the limits of a connection that has sent the key. May be called again."""
        if connection in self._slots:
            self.closed(connection)
            connection.limit()

    def closed(self, connection: LinkConnection) -> None:
        """Drop a closed connection. Does nothing for an authenticated one."""
        slot = self._slots.pop(connection, None)
        if slot is not None:
            slot.release()

    def refuse(self, connection: LinkConnection, why: str) -> None:
        """Close a connection that sent something other than the right key."""
        self._clients.count(why)
        self.closed(connection)
        now = asyncio.get_running_loop().time()
        if why == WRONG_KEY and now - self._noted_at >= NOTE_SECONDS:
            # Limited, so that no client can fill the log.
            self._noted_at = now
            log.warning("link.wrong_key", extra={"peer": connection.peer})
        connection.close(why)


def client_of(host: str, forwarded: bytes | None, trusted: tuple[Network, ...]) -> str:
    """Return the address of the client that a request comes from.

    This is the peer, or, if the peer is a trusted proxy, the last address of `X-Forwarded-For` that is not a trusted
    proxy. Without such an address it is the last proxy that was found.
    """
    if forwarded is None or not is_within(host, trusted):
        return host
    for raw in reversed(forwarded.decode("latin-1").rsplit(",", _MAX_HOPS)[-_MAX_HOPS:]):
        hop = raw.strip()
        if hop.count(":") == 1 or hop.startswith("["):
            # With a port, or in brackets.
            hop = hop.removeprefix("[").partition("]" if hop.startswith("[") else ":")[0]
        if _parse(hop) is None:
            return host
        if not is_within(hop, trusted):
            return hop
        host = hop
    return host


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


def is_within(host: str, networks: tuple[Network, ...]) -> bool:
    """Return whether an address is in one of the networks."""
    return bool(networks) and _is_in_any(host, networks)


@functools.lru_cache(1024)
def _is_in_any(host: str, networks: tuple[Network, ...]) -> bool:
    address = _parse(host)
    return address is not None and any(address in network for network in networks)
