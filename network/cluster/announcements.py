"""Announcements that every other node must process before the change that they announce is confirmed."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterator

from network.cluster.frames import FromNode
from network.cluster.membership import NodeMembership
from network.cluster.outbox import Outbox
from network.cluster.redis_client import RedisUnavailable

log = logging.getLogger(__name__)

# Seconds that a node has to process an announcement. A node silent for longer is considered dead, and clears its caches
# when it notices that.
TIMEOUT = 3.0


@dataclasses.dataclass(slots=True, eq=False)
class Announcements:
    """Announcements to all other nodes, each of which responds."""

    membership: NodeMembership
    outbox: Outbox
    # Whether a node has not processed an announcement, so that its caches must be cleared when that is possible.
    incomplete: bool = False
    _numbers: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.count(1))
    # By number: the nodes that have not responded, the counts of those that have, and the event set at the end.
    _waiting: dict[int, tuple[set[str], list[int], asyncio.Event]] = dataclasses.field(default_factory=dict)

    async def announce(self, make: Callable[[int], FromNode]) -> int:
        """Send a numbered frame to all other nodes; when all have responded, return the sum of their counts.

        make: return the frame with this number.
        """
        try:
            return await self._announce(make)
        except asyncio.CancelledError:
            self.incomplete = True
            raise

    async def _announce(self, make: Callable[[int], FromNode]) -> int:
        try:
            # Read the live nodes again: a node that joined just now may have read the previous state.
            await self.membership.beat()
        except RedisUnavailable:
            # The links may work although Redis is unreachable.
            self.incomplete = True
        others = set(self.membership.nodes) - {self.membership.me}
        if not others:
            return 0
        n = next(self._numbers)
        counts: list[int] = []
        acknowledged = asyncio.Event()
        self._waiting[n] = others, counts, acknowledged
        try:
            frame = make(n)
            for node in list(others):
                if not self.outbox.put(node, frame):
                    self.incomplete = True
            async with asyncio.timeout(TIMEOUT):
                await acknowledged.wait()
        except TimeoutError:
            self.incomplete = True
            log.warning("change.not_announced", extra={"nodes": sorted(others)})
        finally:
            del self._waiting[n]
        return sum(counts)

    def acknowledged(self, node: str, n: int, count: int) -> None:
        """Handle the response of a node."""
        found = self._waiting.get(n)
        if found is not None:
            others, counts, acknowledged = found
            counts.append(count)
            others.discard(node)
            if not others:
                acknowledged.set()

    def nodes_left(self, nodes: frozenset[str]) -> None:
        """Stop waiting for nodes that have left."""
        for others, _, acknowledged in self._waiting.values():
            others -= nodes
            if not others:
                acknowledged.set()
