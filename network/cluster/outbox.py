"""Frames on their way to other nodes, in batches."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable, Sequence, Set

from prometheus_client import Counter

from network.cluster import frames
from network.cluster.frames import FromNode
from network.cluster.links import NodeLinks, NodeUnavailable
from tidings.aio.batcher import Batcher, BatcherClosed, BatcherFull

log = logging.getLogger(__name__)

SENT = Counter("tidings_network_node_frames_sent_total", "Frames delivered to other nodes")
UNSENT = Counter("tidings_network_node_frames_unsent_total", "Frames not delivered to other nodes", ["why"])

# Frames in one batch, bytes of their bodies, and frames that may wait per node.
FRAMES, SIZE, WAITING = 500, 1024 * 1024, 50_000


@dataclasses.dataclass(slots=True, eq=False)
class Outbox:
    """Frames on their way to other nodes. Frames added while a batch is being sent go into the next one."""

    links: NodeLinks
    # Called with a node and the frames that it will not receive, or may have received without a response.
    unsent: Callable[[str, Sequence[FromNode]], None]
    # Returns whether a frame must still be sent when its batch is due.
    is_wanted: Callable[[str, FromNode], bool]
    _nodes: dict[str, Batcher[FromNode, None]] = dataclasses.field(default_factory=dict)

    def put(self, node: str, frame: FromNode) -> bool:
        """Queue one frame. False when too many wait for that node already, or this node is closing."""
        batcher = self._nodes.get(node)
        if batcher is None:
            batcher = self._nodes[node] = Batcher(
                "node", lambda some: self._send(node, some), max_size=FRAMES, max_pending=WAITING
            )
        try:
            batcher.put(frame)
        except (BatcherFull, BatcherClosed):
            UNSENT.labels("waiting").inc()
            return False
        return True

    def waiting(self, node: str) -> Sequence[FromNode]:
        """Return the frames for a node that are not in a batch yet, in order."""
        batcher = self._nodes.get(node)
        return () if batcher is None else list(batcher.waiting())

    def drop(self, nodes: Iterable[str]) -> None:
        """Drop nodes that have left."""
        for node in nodes:
            self._nodes.pop(node, None)
            self.links.drop(node)

    def evict(self, live: Set[str]) -> None:
        """Drop nodes other than these, once they are sent nothing: late responses to a node that has left, and frames
        for one that has never joined, have created them.
        """
        for node in [node for node, batcher in self._nodes.items() if node not in live and not batcher.depth]:
            del self._nodes[node]
        self.links.evict(live | self._nodes.keys())

    async def close(self) -> None:
        """Send waiting frames and accept no more."""
        await asyncio.gather(*[batcher.close() for batcher in self._nodes.values()])

    async def _send(self, node: str, some: Sequence[FromNode]) -> Sequence[None]:
        why = ""
        left: list[FromNode] = []
        for part in frames.split([frame for frame in some if self.is_wanted(node, frame)], SIZE):
            if not why and part:
                why = await self._post(node, part)
            if why:
                # Later parts are not sent either; they would overtake this one.
                left += part
            else:
                SENT.inc(len(part))
        if left:
            UNSENT.labels(why).inc(len(left))
            self.unsent(node, left)
        return [None] * len(some)

    async def _post(self, node: str, part: list[FromNode]) -> str:
        """Send one part; return the reason of a failure, empty on success.

        The next part waits for this one, so frames stay in order.
        """
        try:
            await self.links.post(node, frames.encode(part))
        except NodeUnavailable as error:
            log.debug("packet.unsent", extra={"node": node, "frames": len(part), "error": str(error)})
            return "away"
        except Exception:
            # Without this, the senders would wait for a response that never arrives.
            log.exception("packet.failed", extra={"node": node, "frames": len(part)})
            return "failed"
        return ""
