"""Gauges of what several shards of a process have: each shard sets its share, and the gauge shows all together."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from prometheus_client import Gauge


def _minimum(values: Iterable[float]) -> float:
    return min(values, default=0.0)


def _maximum(values: Iterable[float]) -> float:
    return max(values, default=0.0)


class Share:
    """What one shard has. A plain number is cheaper to set than a gauge; a function is asked when somebody looks."""

    __slots__ = ("__weakref__", "_ask", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self._ask: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        self.value = value

    def set_function(self, ask: Callable[[], float]) -> None:
        self._ask = ask

    def read(self) -> float:
        return self.value if self._ask is None else self._ask()


class SharedGauge:
    """A gauge without labels. It shows the sum of the shares, or another combination of them."""

    def __init__(self, name: str, documentation: str, *, combine: Callable[[Iterable[float]], float] = sum) -> None:
        self._combine = combine
        # A shard that is left takes its shares with it.
        self._shares: weakref.WeakSet[Share] = weakref.WeakSet()
        Gauge(name, documentation).set_function(self._read)

    def share(self) -> Share:
        """One more."""
        made = Share()
        self._shares.add(made)
        return made

    def drop(self, share: Share) -> None:
        """Its shard is left."""
        self._shares.discard(share)

    def _read(self) -> float:
        return self._combine(share.read() for share in list(self._shares))


LEAST, MOST = _minimum, _maximum
