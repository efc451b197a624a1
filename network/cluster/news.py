"""News that every other node has to note before the answer that makes them binding."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable

from network.cluster.frames import FromNode
from network.cluster.membership import Membership
from network.cluster.outbox import Outbox
from network.cluster.server import RedisAway

log = logging.getLogger(__name__)

# Seconds that a node has to note something. One that is not heard of for so long will be believed dead, and forgets
# what it knows when it hears that.
PATIENCE = 3.0


class News:
    """Frames to all other nodes that each of them answers.

    untold: something was not noted by all; they are to forget what they know when that is possible.
    """

    def __init__(self, membership: Membership, outbox: Outbox) -> None:
        self._membership = membership
        self._outbox = outbox
        self._numbers = itertools.count(1)
        # By number: who has not noted it, what was counted, and what is set at the end.
        self._waiting: dict[int, tuple[set[str], list[int], asyncio.Event]] = {}
        self.untold = False

    async def tell(self, make: Callable[[int], FromNode]) -> int:
        """Give a frame with a number to all others; the sum of what they counted, when all have noted it."""
        try:
            # Whoever came a moment ago may have read what is changed.
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
        """A node has answered."""
        found = self._waiting.get(n)
        if found is not None:
            others, counts, noted = found
            counts.append(count)
            others.discard(node)
            if not others:
                noted.set()

    def gone(self, nodes: frozenset[str]) -> None:
        """These nodes will not answer any more."""
        for others, _, noted in self._waiting.values():
            others -= nodes
            if not others:
                noted.set()
