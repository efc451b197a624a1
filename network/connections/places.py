"""Places of live connections on which nobody is logged in, and what is done for these: bounded by tokens."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter, Gauge

from network.settings import Limits
from tidings.runtime.clock import Clock
from tidings.runtime.strangers import Bounds, Network, Refusal, Stranger, Strangers

STRANGERS = Gauge("tidings_network_strangers", "Live connections on which nobody is logged in")
REFUSED = Counter(
    "tidings_network_strangers_refused_total",
    "Live connections refused or ended before anybody had logged in",
    ["why"],
)
EVICTED, LATE = "evicted", "late"

# Tokens a second, and at once, of one address and of all: a connection takes one, and so does each login until one
# succeeds. Whoever logs in gives back what it took. A connection with a login that fails costs about 2 ms of CPU.
EACH_RATE, EACH_BURST = 10.0, 60.0
ALL_RATE, ALL_BURST = 30.0, 200.0
# Tokens that a connection takes over TLS, for its handshake.
HANDSHAKE = 5.0


class Place:
    """What one connection has until somebody logs in on it, and again when nobody is any more."""

    __slots__ = ("_evict", "_host", "_on_proof", "_owed", "_places", "_stranger")

    def __init__(self, places: Places, host: str) -> None:
        self._places = places
        self._host = host
        self._stranger: Stranger | None = None
        self._owed = 0.0
        self._evict: Callable[[], object] | None = None
        self._on_proof: Callable[[], None] | None = None

    def on_eviction(self, evict: Callable[[], object]) -> None:
        """Call this when another connection needs the place."""
        self._evict = evict

    def on_proof(self, tell: Callable[[], None]) -> None:
        """Call this when somebody has logged in."""
        self._on_proof = tell

    @property
    def host(self) -> str:
        """Address of the peer."""
        return self._host

    @property
    def busy(self) -> bool:
        """Is a login under way? Then nobody else is given this place."""
        return self._stranger is not None and self._stranger.busy

    @busy.setter
    def busy(self, value: bool) -> None:
        if self._stranger is not None:
            self._stranger.busy = value

    def take(self, cost: float) -> bool:
        """Tokens, if they are there."""
        refusal = self._places.table.take(self._host, cost)
        if refusal is not None:
            REFUSED.labels(refusal.reason).inc()
            return False
        self._owed += cost
        return True

    def reserve(self, cost: float = 1.0) -> float:
        """Take tokens; returns the seconds until what they are for may be done."""
        self._owed += cost
        return self._places.table.reserve(self._host, cost)

    def enter(self) -> bool:
        """Have a place, if there is one."""
        found = self._places.table.enter(self._host, self._evicted)
        if isinstance(found, Refusal):
            REFUSED.labels(found.reason).inc()
            return False
        self._stranger = found
        STRANGERS.set(len(self._places.table))
        return True

    def proved(self) -> None:
        """Somebody has logged in: the place is free, and what was taken is given back."""
        # Before the address is known, which changes the buckets that count for it.
        self._places.table.give_back(self._host, self._owed)
        self._owed = 0.0
        if self._stranger is not None:
            self._places.table.proved(self._stranger)
            self._stranger = None
        STRANGERS.set(len(self._places.table))
        if self._on_proof is not None:
            self._on_proof()
            self._on_proof = None

    def left(self) -> None:
        """The connection is gone."""
        if self._stranger is not None:
            self._places.table.left(self._stranger)
            self._stranger = None
            STRANGERS.set(len(self._places.table))

    def _evicted(self) -> None:
        self._stranger = None
        REFUSED.labels(EVICTED).inc()
        if self._evict is not None:
            self._evict()


class Places:
    """All of them."""

    def __init__(self, clock: Clock, limits: Limits, trusted: tuple[Network, ...] = ()) -> None:
        self.table = Strangers(
            clock,
            each=Bounds(limits.strangers_each, EACH_RATE, EACH_BURST),
            together=Bounds(limits.strangers, ALL_RATE, ALL_BURST),
            trusted=trusted,
        )

    def __len__(self) -> int:
        return len(self.table)

    def enter(self, host: str, cost: float = 1.0) -> Place | None:
        """A place for a connection from this address, `None` when there is none or the address comes too often."""
        place = Place(self, host)
        return place if place.take(cost) and place.enter() else None

    def enter_again(self, host: str) -> Place | None:
        """A place for a connection whose last device has left it."""
        place = Place(self, host)
        return place if place.enter() else None
