"""Slots of live connections without a login, and the rate limits of unauthenticated clients."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter, Gauge

from network.settings import Limits
from tidings.aio.clock import Clock
from tidings.net.unauthenticated import Bounds, Network, Refusal, UnauthenticatedClients, UnauthenticatedConnection

UNAUTHENTICATED = Gauge("tidings_network_strangers", "Live connections on which nobody is logged in")
REFUSED = Counter(
    "tidings_network_strangers_refused_total",
    "Live connections refused or ended before anybody had logged in",
    ["why"],
)
EVICTED, LATE = "evicted", "late"

# Tokens per second and tokens at once, of one address and of all addresses together. A connection consumes one token,
# and so does each login until one succeeds. A login refunds what its connection consumed. A connection with a failing
# login costs about 2 ms of CPU.
EACH_RATE, EACH_BURST = 10.0, 60.0
ALL_RATE, ALL_BURST = 30.0, 200.0
# Tokens that a TLS connection consumes, for its handshake.
HANDSHAKE = 5.0


class ConnectionSlot:
    """Slot of one connection until a device logs in on it, and again when no device is logged in any longer."""

    __slots__ = ("_evict", "_host", "_on_proof", "_owed", "_slots", "_unauthenticated")

    def __init__(self, slots: ConnectionSlots, host: str) -> None:
        self._slots = slots
        self._host = host
        self._unauthenticated: UnauthenticatedConnection | None = None
        self._owed = 0.0
        self._evict: Callable[[], object] | None = None
        self._on_proof: Callable[[], None] | None = None

    def on_eviction(self, evict: Callable[[], object]) -> None:
        """Set the call for the case that another connection takes the slot."""
        self._evict = evict

    def on_proof(self, tell: Callable[[], None]) -> None:
        """Set the call for the first login."""
        self._on_proof = tell

    @property
    def host(self) -> str:
        """Return the address of the peer."""
        return self._host

    @property
    def busy(self) -> bool:
        """Return whether a login is in progress; if so, the slot is not given to another connection."""
        return self._unauthenticated is not None and self._unauthenticated.busy

    @busy.setter
    def busy(self, value: bool) -> None:
        if self._unauthenticated is not None:
            self._unauthenticated.busy = value

    def take(self, cost: float) -> bool:
        """Consume tokens if they are available; return whether they were."""
        refusal = self._slots.table.take(self._host, cost)
        if refusal is not None:
            REFUSED.labels(refusal.reason).inc()
            return False
        self._owed += cost
        return True

    def reserve(self, cost: float = 1.0) -> float:
        """Consume tokens, on credit if necessary; return the seconds until they are available."""
        self._owed += cost
        return self._slots.table.reserve(self._host, cost)

    def enter(self) -> bool:
        """Take a slot if one is free; return whether it was."""
        found = self._slots.table.enter(self._host, self._evicted)
        if isinstance(found, Refusal):
            REFUSED.labels(found.reason).inc()
            return False
        self._unauthenticated = found
        UNAUTHENTICATED.set(len(self._slots.table))
        return True

    def mark_authenticated(self) -> None:
        """Record a login: free the slot and refund the consumed tokens."""
        # Refunded first, because marking the address as known changes the buckets that count for it.
        self._slots.table.refund(self._host, self._owed)
        self._owed = 0.0
        if self._unauthenticated is not None:
            self._slots.table.mark_authenticated(self._unauthenticated)
            self._unauthenticated = None
        UNAUTHENTICATED.set(len(self._slots.table))
        if self._on_proof is not None:
            self._on_proof()
            self._on_proof = None

    def left(self) -> None:
        """Record that the connection is closed."""
        if self._unauthenticated is not None:
            self._slots.table.left(self._unauthenticated)
            self._unauthenticated = None
            UNAUTHENTICATED.set(len(self._slots.table))

    def _evicted(self) -> None:
        self._unauthenticated = None
        REFUSED.labels(EVICTED).inc()
        if self._evict is not None:
            self._evict()


class ConnectionSlots:
    """Slots and rate limits of all unauthenticated connections."""

    def __init__(self, clock: Clock, limits: Limits, trusted: tuple[Network, ...] = ()) -> None:
        self.table = UnauthenticatedClients(
            clock,
            each=Bounds(limits.unauthenticated_each, EACH_RATE, EACH_BURST),
            together=Bounds(limits.unauthenticated, ALL_RATE, ALL_BURST),
            trusted=trusted,
        )

    def __len__(self) -> int:
        return len(self.table)

    def enter(self, host: str, cost: float = 1.0) -> ConnectionSlot | None:
        """Return a slot for a connection from this address, `None` when no slot or no token is available.

        cost: rate-limit tokens of the connection.
        """
        slot = ConnectionSlot(self, host)
        return slot if slot.take(cost) and slot.enter() else None

    def enter_again(self, host: str) -> ConnectionSlot | None:
        """Return a slot for a connection whose last device has detached, `None` when none is free."""
        slot = ConnectionSlot(self, host)
        return slot if slot.enter() else None
