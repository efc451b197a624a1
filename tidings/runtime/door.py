"""The door of a server over HTTP: which connections it takes, and what it does for those who have proved nothing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Sequence

from prometheus_client import Counter, Gauge

from tidings.runtime import strangers
from tidings.runtime.clock import Clock
from tidings.runtime.refusal_log import RefusalLog
from tidings.runtime.settings import StrangerSettings
from tidings.runtime.strangers import Bounds, Network, Refusal, Stranger, Strangers
from tidings.runtime.token_buckets import TokenBuckets
from tidings.runtime.turns import Refusals, Turns

STRANGERS = Gauge("tidings_strangers", "Open connections over HTTP that have not logged in")
DELAYED = Counter("tidings_strangers_delayed_total", "Requests of strangers that waited for their turn")
REFUSED = Counter(
    "tidings_strangers_refused_total", "Connections and requests of strangers that were refused", ["what"]
)

SHED = Counter("tidings_requests_shed_total", "Requests over HTTP that were refused because too many waited")

# What is done for a stranger, in tokens; one of them is about 0.7 ms of CPU.
REQUEST = 1.0
SEGMENT = 0.1
BYTES_PER_TOKEN = 512 * 1024
# The longest that a request of a stranger waits for its turn, in seconds; one that would wait longer is refused.
LONGEST_WAIT = 5.0
# Connections a second for each request, and those that one over TLS counts as, for its handshake.
_CONNECTIONS = 2.0
_HANDSHAKE = 8.0
# Tokens of a full bucket, in seconds of its rate: of one address and of all.
_FULL_EACH, _FULL = 20.0, 4.0
# Bytes that are held for strangers: heads that are not complete, and bodies that nobody has read.
MAX_HELD = 8 * 1024 * 1024
# Of them for each connection, whatever the others hold: a head and a login's body.
HELD_EACH = 16 * 1024
# Connections that are closed in one turn of the loop, of clients that have hung up: 2 ms of work.
_FAREWELLS = 64


@dataclasses.dataclass(slots=True, eq=False)
class Visit:
    """One connection.

    stranger: its place among those who have proved nothing; `None` once it has logged in, and for trusted proxies.
    proxied:  each request is another client's, so none proves anything for the next.
    unnamed:  of one that is proxied: the request that is under way is nobody's but the proxy's own, such as a probe.
    vouched:  of one that is proxied: the request that is under way has logged in.
    spent:    tokens that it gets back when it logs in; payer: the address that they are of.
    held:     bytes.
    """

    host: str
    stranger: Stranger | None
    proxied: bool
    payer: str
    unnamed: bool = False
    vouched: bool = False
    spent: float = 0.0
    held: int = 0
    is_served: bool = False
    has_left: bool = False

    @property
    def is_proved(self) -> bool:
        return self.stranger is None and not self.proxied


class Door:
    """Who comes in, who has logged in, and what may be done for the others."""

    def __init__(
        self,
        limits: StrangerSettings,
        clock: Clock,
        *,
        connections: int,
        trusted: Sequence[Network] = (),
        recognise: Callable[[bytes], bool] = lambda authorization: False,
        tls: bool = False,
        urgent: Collection[str] = (),
        is_crowded: Callable[[str, float], bool] = lambda path, delay: False,
    ) -> None:
        """connections: open at a time, of all; recognise(): is this value of `Authorization` known to be good?

        urgent: paths of requests that are begun before others that came with them.

        is_crowded(path, delay): would such a request, which waits so many seconds to be begun, be refused, since too
        many wait already?
        """
        self.urgent = urgent
        self.is_crowded = is_crowded
        self.turns = Turns()
        self.refusals = Refusals()
        # Connections whose clients have hung up are closed.
        self.farewells = Turns(_FAREWELLS, math.inf)
        # Connections that wait for a slot are bounded by whoever takes them.
        self.limits = limits
        self.refusal_log = RefusalLog(clock)
        self._strangers = _table(limits, clock, 1.0, trusted)
        # Buckets of their own, so that requests that wait for their turn keep no connection out.
        self._arrivals = _table(limits, clock, _CONNECTIONS, trusted)
        # Of trusted proxies, what they ask for themselves: a flood of strangers delays no probe of health.
        self._unnamed: TokenBuckets[str] = TokenBuckets(
            clock, rate=limits.rate, burst=limits.rate * _FULL, remembered=strangers.REMEMBERED
        )
        self._arrival = _HANDSHAKE if tls else 1.0
        self._connections = connections
        self._recognise = recognise
        self._open = 0
        self._held = 0
        # Called when there may be room for another connection, and when one was closed because there is none.
        self.on_room: list[Callable[[], None]] = []
        self.on_refusal: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return self._open

    def enter(self, host: str, close: Callable[[], None]) -> Visit | Refusal:
        """A visit until it `left`; close: called when its place is given to another."""
        if self._open >= self._connections and not self._strangers.replace():
            return Refusal(strangers.ALL, 1.0)
        if self._strangers.is_trusted(host):
            visit = Visit(host, None, True, host)
        else:
            refusal = self._arrivals.take(host, self._arrival)
            if refusal is not None:
                return refusal
            place = self._strangers.enter(host, close)
            if isinstance(place, Refusal):
                self._arrivals.give_back(host, self._arrival)
                return place
            visit = Visit(host, place, False, host)
            STRANGERS.set(len(self._strangers))
        self._open += 1
        return visit

    def is_known(self, host: str) -> bool:
        """Whether this address has logged in within the hour, or is a trusted proxy."""
        return self._strangers.is_known(host) or self._strangers.is_trusted(host)

    def refused(self, host: str, reason: str) -> None:
        """A connection was closed because there was no place for it."""
        REFUSED.labels("connection").inc()
        self.refusal_log.refused(strangers.key_of(host), reason)
        for tell in self.on_refusal:
            tell()

    def shed(self) -> None:
        """A request was refused because too many waited to be begun, whoever's they are."""
        SHED.inc()

    def left(self, visit: Visit) -> None:
        """The connection is closed, or is none over HTTP any more. Without effect on one that has left before."""
        if visit.has_left:
            return
        visit.has_left = True
        self._open -= 1
        self.release(visit)
        if visit.stranger is not None:
            self._strangers.left(visit.stranger)
            STRANGERS.set(len(self._strangers))
        self._room()

    def proved(self, visit: Visit) -> None:
        """What it sent was a good token, password or key; or, when it has left, what came of it has logged in."""
        self._give_back(visit, visit.spent)
        visit.spent = 0.0
        visit.vouched = visit.proxied
        self.release(visit)
        if visit.stranger is not None:
            self._arrivals.give_back(visit.host, self._arrival)
            self._arrivals.know(visit.host)
            self._strangers.proved(visit.stranger)
            visit.stranger = None
            STRANGERS.set(len(self._strangers))
            self._room()

    def begin(self, visit: Visit, headers: Iterable[tuple[bytes, bytes]]) -> float:
        """Of a visit that is not proved: a request is to be served; the seconds until it may be, infinite for never."""
        authorization = forwarded = None
        for name, value in headers:
            if name == b"authorization":
                authorization = value
            elif name == b"x-forwarded-for":
                # Some proxies add a line of their own to those of others.
                forwarded = value if forwarded is None else forwarded + b"," + value
        visit.vouched = False
        if visit.proxied:
            visit.payer, visit.spent = self._strangers.speaks_for(visit.host, forwarded), 0.0
            visit.unnamed = forwarded is None
        if authorization is not None and self._recognise(authorization):
            self.proved(visit)
            return 0.0
        wait = self._reserve(visit, REQUEST)
        if wait > LONGEST_WAIT:
            self._give_back(visit, REQUEST)
            REFUSED.labels("request").inc()
            return float("inf")
        visit.spent += REQUEST
        DELAYED.inc(wait > 0)
        return wait

    def serve(self, visit: Visit, *, is_whole: bool) -> None:
        """Its request is being served; is_whole: all of it is here, so that the rest is up to us."""
        if visit.stranger is not None:
            visit.stranger.busy = is_whole

    def ended(self, visit: Visit) -> None:
        """The request was answered."""
        self.release(visit)
        visit.vouched = False
        if visit.stranger is not None:
            visit.stranger.busy = False

    def given_up(self, visit: Visit) -> None:
        """The connection closed before its request had its turn."""
        self._give_back(visit, REQUEST)

    def charge(self, visit: Visit, tokens: float) -> None:
        """A request costs more than others do."""
        self._reserve(visit, tokens)
        visit.spent += tokens

    def received(self, visit: Visit, size: int, *, is_held: bool) -> float:
        """Of a visit that is not proved: bytes came; the seconds until more may."""
        if is_held:
            visit.held += size
            self._held += size
        if visit.proxied:
            return 0.0
        tokens = SEGMENT + size / BYTES_PER_TOKEN
        visit.spent += tokens
        return self._strangers.reserve(visit.host, tokens)

    def is_over(self, visit: Visit) -> bool:
        """Is more held for strangers than may be, and is it this one's turn to go? Who holds little is not."""
        return self._held > MAX_HELD and visit.held > HELD_EACH

    def release(self, visit: Visit) -> None:
        """What it had sent is not held any more."""
        self._held -= visit.held
        visit.held = 0

    def _reserve(self, visit: Visit, tokens: float) -> float:
        if not visit.unnamed:
            return self._strangers.reserve(visit.payer, tokens)
        proxy = strangers.key_of(visit.host)
        wait = self._unnamed.wait(proxy, tokens)
        self._unnamed.add(proxy, tokens)
        return wait

    def _give_back(self, visit: Visit, tokens: float) -> None:
        if visit.unnamed:
            self._unnamed.add(strangers.key_of(visit.host), -tokens)
        else:
            self._strangers.give_back(visit.payer, tokens)

    def _room(self) -> None:
        for tell in self.on_room:
            tell()


def _table(limits: StrangerSettings, clock: Clock, factor: float, trusted: Sequence[Network]) -> Strangers:
    each, together = limits.rate_each * factor, limits.rate * factor
    return Strangers(
        clock,
        each=Bounds(limits.connections_each, each, each * _FULL_EACH),
        together=Bounds(limits.connections, together, together * _FULL),
        trusted=trusted,
    )
