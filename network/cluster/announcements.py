"""Announcements that every other node must process before the change that they announce is confirmed."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable

from network.cluster.frames import FromNode
from network.cluster.membership import NodeMembership
from network.cluster.outbox import Outbox
from network.cluster.redis_client import RedisAway

log = logging.getLogger(__name__)

# Seconds that a node has to process an announcement. A node silent for longer is considered dead, and clears its caches
# when it notices that.
PATIENCE = 3.0


class Announcements:
    """Announcements to all other nodes, each of which responds.

    untold: not all nodes have processed an announcement; their caches must be cleared when that is possible.
    """

    def __init__(self, membership: NodeMembership, outbox: Outbox) -> None:
        self._membership = membership
        self._outbox = outbox
        self._numbers = itertools.count(1)
        # By number: the nodes that have not responded, the counts of those that have, and the event set at the end.
        self._waiting: dict[int, tuple[set[str], list[int], asyncio.Event]] = {}
        self.untold = False

    async def announce(self, make: Callable[[int], FromNode]) -> int:
        """Send a numbered frame to all other nodes; when all have responded, return the sum of their counts.

        make: return the frame with this number.
        """
        try:
            # A node that joined just now may have read the previous state.
            await self._membership.beat()
        except RedisAway:
            self.untold = True
            return 0
        others = set(self._membership.nodes) - {self._membership.me}
        if not others:
            return 0
        n = next(self._numbers)
        counts: list[int] = []
        noted = asyncio.Event()
        self._waiting[n] = others, counts, noted
        try:
            frame = make(n)
            for node in list(others):
                if not self._outbox.put(node, frame):
                    self.untold = True
            async with asyncio.timeout(PATIENCE):
                await noted.wait()
        except TimeoutError:
            self.untold = True
            log.warning("news.not_noted", extra={"nodes": sorted(others)})
        finally:
            del self._waiting[n]
        return sum(counts)

    def noted(self, node: str, n: int, count: int) -> None:
        """Handle the response of a node."""
        found = self._waiting.get(n)
        if found is not None:
            others, counts, noted = found
            counts.append(count)
            others.discard(node)
            if not others:
                noted.set()

    def gone(self, nodes: frozenset[str]) -> None:
        """Stop waiting for nodes that have left."""
        for others, _, noted in self._waiting.values():
            others -= nodes
            if not others:
                noted.set()
