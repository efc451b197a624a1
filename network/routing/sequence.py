"""Numbers of envelopes in the order of their arrival, which never go back, not even over a restart."""

from __future__ import annotations

from typing import Protocol

from tidings.runtime.clock import Clock

# Nodes of one network may number envelopes at the same time, each in a slot of its own: the lowest bits of its numbers.
SLOTS = 1 << 15
# Microseconds in which a node has one number; when it needs more it runs ahead of the clock.
_UNIT = 16


class Numbers(Protocol):
    """Where the numbers of envelopes come from."""

    def next(self) -> int:
        """Higher than before."""
        ...


class SequenceNumbers:
    """Numbers above both the last one that is stored and the time in microseconds; they stay below 2^53 until 2255."""

    def __init__(self, clock: Clock, last_stored: int) -> None:
        self._last = max(last_stored, int(clock.now() * 1_000_000))

    def next(self) -> int:
        """One more than before."""
        self._last += 1
        return self._last


class NodeSequenceNumbers:
    """Numbers of one node among others: those of all follow the time, and no two are the same. Below 2^63 until 2112.

    Between two nodes the order is as good as their clocks are; whatever a node has numbered stays in its order.
    """

    def __init__(self, clock: Clock, last_stored: int, slot: int) -> None:
        """slot: below `SLOTS`, and no other node's."""
        self._clock = clock
        self._slot = slot
        self._last = last_stored // SLOTS

    def next(self) -> int:
        """At the next moment that has no number yet."""
        self._last = max(self._last + 1, int(self._clock.now() * 1_000_000) // _UNIT)
        return self._last * SLOTS + self._slot
