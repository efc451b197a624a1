"""Connection limiter of an HTTP server: admits connections, and limits the work for unauthenticated clients."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Sequence

from prometheus_client import Counter, Gauge

from tidings.aio.clock import Clock
from tidings.aio.dispatch_limit import DispatchLimit, RefusalLimit
from tidings.aio.token_buckets import TokenBuckets
from tidings.http.listener_settings import UnauthenticatedSettings
from tidings.http.refusal_log import RefusalLog, UntrustedForwarders
from tidings.net import unauthenticated
from tidings.net.unauthenticated import Bounds, Network, Refusal, UnauthenticatedClients, UnauthenticatedConnection

UNAUTHENTICATED = Gauge("tidings_unauthenticated_connections", "Open HTTP connections of unauthenticated clients")
DELAYED = Counter(
    "tidings_unauthenticated_requests_delayed_total", "Requests of unauthenticated clients that waited for a slot"
)
REFUSED = Counter(
    "tidings_unauthenticated_refused_total", "Refused connections and requests of unauthenticated clients", ["what"]
)

SHED = Counter("tidings_requests_shed_total", "HTTP requests refused because too many waited")

# Work for unauthenticated clients, in tokens; one token is about 0.7 ms of CPU.
REQUEST = 1.0
SEGMENT = 0.1
BYTES_PER_TOKEN = 512 * 1024
# Longest delay of a request from an unauthenticated client, seconds; one that would wait longer is refused.
LONGEST_WAIT = 5.0
# Longest delay of a request for which `consume` takes tokens, seconds. So after a flood of requests that cost more than
# others, requests of other clients wait or are refused for no longer than this.
LONGEST_CONSUMED_DELAY = 10.0
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
_CLOSED_PER_ITERATION = 64


@dataclasses.dataclass(slots=True, eq=False)
class AdmittedConnection:
    """One admitted connection."""

    host: str
    # Its slot among the unauthenticated connections; `None` once it has logged in, and for trusted proxies.
    slot: UnauthenticatedConnection | None
    # Whether it comes from a trusted proxy. Each request may then be from another client, so that a login authenticates
    # one request only.
    proxied: bool
    # Address from whose bucket `consumed` was consumed.
    payer: str
    # Proxied only: whether the request in progress is the proxy's own, such as a health probe.
    by_proxy_itself: bool = False
    # Proxied only: whether the request in progress has logged in.
    request_authenticated: bool = False
    # Tokens to be refunded when it logs in.
    consumed: float = 0.0
    # Bytes of it that are held in memory.
    held: int = 0
    is_served: bool = False
    is_released: bool = False

    @property
    def is_authenticated(self) -> bool:
        return self.slot is None and not self.proxied


@dataclasses.dataclass(eq=False, repr=False)
class ConnectionLimiter:
    """Admits connections, tracks which of them have logged in, and limits the work for the others."""

    limits: UnauthenticatedSettings
    clock: Clock
    _: dataclasses.KW_ONLY
    connections: int  # open at a time, of all kinds
    trusted: Sequence[Network] = ()  # networks of proxies whose `X-Forwarded-For` is believed
    recognise: Callable[[bytes], bool] = lambda authorization: False  # whether an `Authorization` is known to be valid
    recognise_path: Callable[[str], bool] = lambda path: False  # whether a path has a secret that is known to be valid
    key_header: bytes = b""  # header that contains a token alone, as `Authorization` does after `Bearer`
    tls: bool = False  # whether connections use TLS, and count as `_HANDSHAKE` connections each
    urgent: Collection[str] = ()  # paths of requests that are dispatched before others that arrived with them
    # Whether a request to `path`, dispatched `delay` seconds from now, would be refused because too many wait already.
    is_overloaded: Callable[[str, float], bool] = lambda path, delay: False

    def __post_init__(self) -> None:
        limits, clock, trusted = self.limits, self.clock, self.trusted
        self.dispatch_limit = DispatchLimit()
        self.refusals = RefusalLimit()
        # Closes connections whose clients have disconnected.
        self.closings = DispatchLimit(_CLOSED_PER_ITERATION, math.inf)
        # Waiting connections are bounded by the acceptor.
        self.refusal_log = RefusalLog(clock)
        self._forwarders = UntrustedForwarders(clock)
        self._unauthenticated = _table(limits, clock, 1.0, trusted)
        # Separate buckets, so that requests that wait do not keep connections out.
        self._arrivals = _table(limits, clock, _CONNECTIONS, trusted)
        # Requests of the trusted proxies themselves: a flood from unauthenticated clients delays no health probe.
        self._of_proxies: TokenBuckets[str] = TokenBuckets(
            clock, rate=limits.rate, burst=limits.rate * _FULL, remembered=unauthenticated.REMEMBERED
        )
        self._arrival = _HANDSHAKE if self.tls else 1.0
        self._open = 0
        self._held = 0
        # Called when a slot may have become available, and when a connection was closed because there was none.
        self.on_room: list[Callable[[], None]] = []
        self.on_refusal: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return self._open

    def admit(self, host: str, close: Callable[[], None]) -> AdmittedConnection | Refusal:
        """Admit a connection, which counts as open until `release_slot`. Returns a `Refusal` when there is no slot.

        close: called when its slot is given to another connection.
        """
        if self._open >= self.connections and not self._unauthenticated.replace():
            return Refusal(unauthenticated.ALL, 1.0)
        if self._unauthenticated.is_trusted(host):
            admitted = AdmittedConnection(host, None, True, host)
        else:
            refusal = self._arrivals.take(host, self._arrival)
            if refusal is not None:
                return refusal
            slot = self._unauthenticated.take_slot(host, close)
            if isinstance(slot, Refusal):
                self._arrivals.refund(host, self._arrival)
                return slot
            admitted = AdmittedConnection(host, slot, False, host)
            UNAUTHENTICATED.set(len(self._unauthenticated))
        self._open += 1
        return admitted

    def is_known(self, host: str) -> bool:
        """Return whether this address has logged in within the last hour, or is a trusted proxy."""
        return self._unauthenticated.is_known(host) or self._unauthenticated.is_trusted(host)

    def refused(self, host: str, reason: str) -> None:
        """Record that a connection was closed because there was no slot for it."""
        REFUSED.labels("connection").inc()
        self.refusal_log.refused(unauthenticated.key_of(host), reason)
        for notify in self.on_refusal:
            notify()

    def shed(self) -> None:
        """Count a request, authenticated or not, that was refused because too many waited to be dispatched."""
        SHED.inc()

    def release_slot(self, admitted: AdmittedConnection) -> None:
        """Release the slot of a connection that is closed or has left HTTP. Without effect the second time."""
        if admitted.is_released:
            return
        admitted.is_released = True
        self._open -= 1
        self.release_bytes(admitted)
        if admitted.slot is not None:
            self._unauthenticated.release(admitted.slot)
            UNAUTHENTICATED.set(len(self._unauthenticated))
        self._room()

    def mark_authenticated(self, admitted: AdmittedConnection) -> None:
        """Record that the connection sent a valid token, password or key, and refund its tokens.

        May come after `release_slot`, as for a connection that was upgraded and then logged in.
        """
        self._refund(admitted, admitted.consumed)
        admitted.consumed = 0.0
        admitted.request_authenticated = admitted.proxied
        self.release_bytes(admitted)
        if admitted.slot is not None:
            self._arrivals.refund(admitted.host, self._arrival)
            self._arrivals.mark_known(admitted.host)
            self._unauthenticated.mark_authenticated(admitted.slot)
            admitted.slot = None
            UNAUTHENTICATED.set(len(self._unauthenticated))
            self._room()

    def admit_request(
        self, admitted: AdmittedConnection, headers: Iterable[tuple[bytes, bytes]], path: str = ""
    ) -> float:
        """Admit a request from an unauthenticated client. Returns the seconds to delay it, infinity to reject it."""
        authorization = forwarded = None
        for name, value in headers:
            if name == b"authorization":
                authorization = value
            elif name == self.key_header:
                authorization = b"Bearer " + value
            elif name == b"x-forwarded-for":
                # Some proxies append another header instead of extending the existing one.
                forwarded = value if forwarded is None else forwarded + b"," + value
        admitted.request_authenticated = False
        if forwarded is not None and not admitted.proxied:
            self._forwarders.seen(admitted.host)
        if admitted.proxied:
            admitted.payer, admitted.consumed = self._unauthenticated.client_of(admitted.host, forwarded), 0.0
            admitted.by_proxy_itself = forwarded is None
        if (authorization is not None and self.recognise(authorization)) or self.recognise_path(path):
            self.mark_authenticated(admitted)
            return 0.0
        wait = self._reserve(admitted, REQUEST)
        if wait > LONGEST_WAIT:
            self._refund(admitted, REQUEST)
            REFUSED.labels("request").inc()
            return float("inf")
        admitted.consumed += REQUEST
        DELAYED.inc(wait > 0)
        return wait

    def serve(self, admitted: AdmittedConnection, *, is_whole: bool) -> None:
        """Record that its request is being served.

        is_whole: whether all of the request has arrived, so that only this process delays the response.
        """
        if admitted.slot is not None:
            admitted.slot.busy = is_whole

    def end_request(self, admitted: AdmittedConnection) -> None:
        """Record that the request was answered."""
        self.release_bytes(admitted)
        admitted.request_authenticated = False
        if admitted.slot is not None:
            admitted.slot.busy = False

    def refund_request(self, admitted: AdmittedConnection) -> None:
        """Refund the tokens of a request whose connection closed before it was dispatched."""
        self._refund(admitted, REQUEST)

    def consume(self, admitted: AdmittedConnection, tokens: float) -> None:
        """Consume tokens for a request that costs more than others, unless `LONGEST_CONSUMED_DELAY` is reached."""
        if self._reserve(admitted, tokens) > LONGEST_CONSUMED_DELAY:
            self._refund(admitted, tokens)
        else:
            admitted.consumed += tokens

    def received(self, admitted: AdmittedConnection, size: int, *, is_held: bool) -> float:
        """Consume tokens for bytes from an unauthenticated client. Returns the seconds until more may be read.

        Bytes that would wait longer than `LONGEST_WAIT` consume no tokens: the wait limits their rate, and after a
        flood of bodies the requests of others at that address are refused for no longer.

        is_held: the bytes stay in memory until `release_bytes`.
        """
        if is_held:
            admitted.held += size
            self._held += size
        if admitted.proxied:
            return 0.0
        tokens = SEGMENT + size / BYTES_PER_TOKEN
        wait = self._unauthenticated.reserve(admitted.host, tokens)
        if wait > LONGEST_WAIT:
            self._unauthenticated.refund(admitted.host, tokens)
        else:
            admitted.consumed += tokens
        return wait

    def is_over(self, admitted: AdmittedConnection) -> bool:
        """Return whether this connection is to be closed because too much is held for unauthenticated clients.

        A connection that holds at most `HELD_EACH` bytes is not.
        """
        return self._held > MAX_HELD and admitted.held > HELD_EACH

    def release_bytes(self, admitted: AdmittedConnection) -> None:
        """Record that none of its bytes are held any longer."""
        self._held -= admitted.held
        admitted.held = 0

    def _reserve(self, admitted: AdmittedConnection, tokens: float) -> float:
        if not admitted.by_proxy_itself:
            return self._unauthenticated.reserve(admitted.payer, tokens)
        proxy = unauthenticated.key_of(admitted.host)
        wait = self._of_proxies.wait(proxy, tokens)
        self._of_proxies.add(proxy, tokens)
        return wait

    def _refund(self, admitted: AdmittedConnection, tokens: float) -> None:
        if admitted.by_proxy_itself:
            self._of_proxies.add(unauthenticated.key_of(admitted.host), -tokens)
        else:
            self._unauthenticated.refund(admitted.payer, tokens)

    def _room(self) -> None:
        for notify in self.on_room:
            notify()


def _table(
    limits: UnauthenticatedSettings, clock: Clock, factor: float, trusted: Sequence[Network]
) -> UnauthenticatedClients:
    each, together = limits.rate_each * factor, limits.rate * factor
    return UnauthenticatedClients(
        clock,
        each=Bounds(limits.connections_each, each, each * _FULL_EACH),
        together=Bounds(limits.connections, together, together * _FULL),
        trusted=trusted,
    )
