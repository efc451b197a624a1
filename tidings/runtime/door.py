"""Connection limiter of an HTTP server: admits connections, and limits the work for unauthenticated clients."""

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
from tidings.runtime.untrusted_forwarders import UntrustedForwarders

STRANGERS = Gauge("tidings_strangers", "Open connections over HTTP that have not logged in")
DELAYED = Counter("tidings_strangers_delayed_total", "Requests of strangers that waited for their turn")
REFUSED = Counter(
    "tidings_strangers_refused_total", "Connections and requests of strangers that were refused", ["what"]
)

SHED = Counter("tidings_requests_shed_total", "Requests over HTTP that were refused because too many waited")

# Work for unauthenticated clients, in tokens; one token is about 0.7 ms of CPU.
REQUEST = 1.0
SEGMENT = 0.1
BYTES_PER_TOKEN = 512 * 1024
# Longest delay of a request from an unauthenticated client, seconds; one that would wait longer is refused.
LONGEST_WAIT = 5.0
# Connections per second for each request per second, and connections that one over TLS counts as (its handshake).
_CONNECTIONS = 2.0
_HANDSHAKE = 8.0
# Size of a full bucket, in seconds of its rate: for one address and for all together.
_FULL_EACH, _FULL = 20.0, 4.0
# Bytes held for unauthenticated clients: incomplete heads, and bodies that have not been read.
MAX_HELD = 8 * 1024 * 1024
# Bytes of these that each connection may hold whatever the others hold: a head and the body of a login.
HELD_EACH = 16 * 1024
# Disconnected clients whose connections are closed per event-loop iteration: 2 ms of work.
_FAREWELLS = 64


@dataclasses.dataclass(slots=True, eq=False)
class Visit:
    """One admitted connection."""

    host: str
    # Its slot among the unauthenticated connections; `None` once it has logged in, and for trusted proxies.
    stranger: Stranger | None
    # Through a trusted proxy: each request may be another client's, so a login does not authenticate the next one.
    proxied: bool
    # Address from whose bucket `spent` was consumed.
    payer: str
    # Proxied only: the request in progress is the proxy's own, such as a probe.
    unnamed: bool = False
    # Proxied only: the request in progress has logged in.
    vouched: bool = False
    # Tokens to be refunded when it logs in.
    spent: float = 0.0
    # Bytes held.
    held: int = 0
    is_served: bool = False
    has_left: bool = False

    @property
    def is_proved(self) -> bool:
        return self.stranger is None and not self.proxied


class Door:
    """Admits connections, tracks which of them have logged in, and limits the work for the others."""

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
        """connections: open at a time, of all kinds.
        trusted: networks of proxies whose `X-Forwarded-For` is believed.
        recognise(authorization): whether this value of `Authorization` is known to be valid.
        tls: connections use TLS, and count as `_HANDSHAKE` connections each.
        urgent: paths of requests that are dispatched before others that arrived with them.
        is_crowded(path, delay): whether such a request, dispatched `delay` seconds from now, would be refused because
            too many wait already.
        """
        self.urgent = urgent
        self.is_crowded = is_crowded
        self.turns = Turns()
        self.refusals = Refusals()
        # Closes connections whose clients have disconnected.
        self.farewells = Turns(_FAREWELLS, math.inf)
        # Waiting connections are bounded by the acceptor.
        self.limits = limits
        self.refusal_log = RefusalLog(clock)
        self._forwarders = UntrustedForwarders(clock)
        self._strangers = _table(limits, clock, 1.0, trusted)
        # Separate buckets, so that requests that wait do not keep connections out.
        self._arrivals = _table(limits, clock, _CONNECTIONS, trusted)
        # Requests of the trusted proxies themselves: a flood from unauthenticated clients delays no health probe.
        self._unnamed: TokenBuckets[str] = TokenBuckets(
            clock, rate=limits.rate, burst=limits.rate * _FULL, remembered=strangers.REMEMBERED
        )
        self._arrival = _HANDSHAKE if tls else 1.0
        self._connections = connections
        self._recognise = recognise
        self._open = 0
        self._held = 0
        # Called when a slot may have become available, and when a connection was closed for want of one.
        self.on_room: list[Callable[[], None]] = []
        self.on_refusal: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return self._open

    def enter(self, host: str, close: Callable[[], None]) -> Visit | Refusal:
        """Admit a connection; the visit lasts until `left`. Returns a `Refusal` when there is no slot.

        close: called when its slot is given to another connection.
        """
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
        """Return whether this address has logged in within the last hour, or is a trusted proxy."""
        return self._strangers.is_known(host) or self._strangers.is_trusted(host)

    def refused(self, host: str, reason: str) -> None:
        """Record that a connection was closed because there was no slot for it."""
        REFUSED.labels("connection").inc()
        self.refusal_log.refused(strangers.key_of(host), reason)
        for tell in self.on_refusal:
            tell()

    def shed(self) -> None:
        """Count a request, authenticated or not, that was refused because too many waited to be dispatched."""
        SHED.inc()

    def left(self, visit: Visit) -> None:
        """Release the slot of a connection that is closed or has left HTTP. Without effect the second time."""
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
        """Record that the connection sent a valid token, password or key, and refund its tokens.

        May come after `left`, as for a connection that was upgraded and then logged in.
        """
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
        """Admit a request from an unauthenticated client. Returns the seconds to delay it, infinity to reject it."""
        authorization = forwarded = None
        for name, value in headers:
            if name == b"authorization":
                authorization = value
            elif name == b"x-forwarded-for":
                # Some proxies append another header instead of extending the existing one.
                forwarded = value if forwarded is None else forwarded + b"," + value
        visit.vouched = False
        if forwarded is not None and not visit.proxied:
            self._forwarders.seen(visit.host)
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
        """Record that its request is being served.

        is_whole: all of the request has arrived, so only this process delays the response.
        """
        if visit.stranger is not None:
            visit.stranger.busy = is_whole

    def ended(self, visit: Visit) -> None:
        """Record that the request was answered."""
        self.release(visit)
        visit.vouched = False
        if visit.stranger is not None:
            visit.stranger.busy = False

    def given_up(self, visit: Visit) -> None:
        """Refund the tokens of a request whose connection closed before it was dispatched."""
        self._give_back(visit, REQUEST)

    def charge(self, visit: Visit, tokens: float) -> None:
        """Consume tokens for a request that costs more than others."""
        self._reserve(visit, tokens)
        visit.spent += tokens

    def received(self, visit: Visit, size: int, *, is_held: bool) -> float:
        """Consume tokens for bytes from an unauthenticated client. Returns the seconds until more may be read.

        is_held: the bytes stay in memory until `release`.
        """
        if is_held:
            visit.held += size
            self._held += size
        if visit.proxied:
            return 0.0
        tokens = SEGMENT + size / BYTES_PER_TOKEN
        visit.spent += tokens
        return self._strangers.reserve(visit.host, tokens)

    def is_over(self, visit: Visit) -> bool:
        """Return whether this connection is to be closed because too much is held for unauthenticated clients.

        A connection that holds at most `HELD_EACH` bytes is not.
        """
        return self._held > MAX_HELD and visit.held > HELD_EACH

    def release(self, visit: Visit) -> None:
        """Record that none of its bytes are held any longer."""
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
