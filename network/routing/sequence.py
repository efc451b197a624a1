"""Sequence numbers of envelopes in the order of arrival. They never decrease, not even across a restart."""

from __future__ import annotations

from tidings.aio.clock import Clock

# Nodes of one network number envelopes at the same time, each with its own index in the lowest bits of the number.
NODE_INDEXES = 1 << 15
# Microseconds per sequence number of a node; a node that needs more numbers runs ahead of the clock.
_UNIT = 16


class SequenceNumbers:
    """Numbers above both the last stored one and the time in microseconds; they stay below 2^53 until 2255."""

    def __init__(self, clock: Clock, last_stored: int) -> None:
        self._last = max(last_stored, int(clock.now() * 1_000_000))

    def next(self) -> int:
        """Return a number higher than all before: the previous one plus one."""
        self._last += 1
        return self._last


class NodeSequenceNumbers:
    """Numbers of one of several nodes. They follow the time and are unique among all nodes. Below 2^63 until 2112.

    The order between two nodes is as exact as their clocks; the numbers of one node always keep its order.
    """

    def __init__(self, clock: Clock, last_stored: int, node_index: int) -> None:
        """node_index: below `NODE_INDEXES`, and unique among the nodes."""
        self._clock = clock
        self._node_index = node_index
        self._last = last_stored // NODE_INDEXES

    def next(self) -> int:
        """Return the number of the next time unit without one."""
        self._last = max(self._last + 1, int(self._clock.now() * 1_000_000) // _UNIT)
        return self._last * NODE_INDEXES + self._node_index


Numbers = SequenceNumbers | NodeSequenceNumbers
