"""Frames that are on their way to other nodes, in packets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Counter

from network.cluster import frames
from network.cluster.frames import FromNode
from network.cluster.links import Links, NodeAway
from tidings.runtime.batcher import Batcher, BatcherClosed, BatcherFull

log = logging.getLogger(__name__)

SENT = Counter("tidings_network_node_frames_sent_total", "Frames that other nodes have taken")
UNSENT = Counter("tidings_network_node_frames_unsent_total", "Frames that other nodes have not taken", ["why"])

# Frames in one packet, bytes of their bodies, and frames that may wait for a node's turn.
FRAMES, SIZE, WAITING = 500, 1024 * 1024, 50_000


class Outbox:
    """What is on its way to other nodes. What arrives while a packet is being sent goes into the next.

    unsent(node, frames):   what another node will not get, or perhaps has got and not answered.
    is_wanted(node, frame): has it to be sent yet, now that it is its turn?
    """

    def __init__(
        self,
        links: Links,
        unsent: Callable[[str, Sequence[FromNode]], None],
        *,
        is_wanted: Callable[[str, FromNode], bool],
    ) -> None:
        self._links = links
        self._unsent = unsent
        self._is_wanted = is_wanted
        self._nodes: dict[str, Batcher[FromNode, None]] = {}

    def put(self, node: str, frame: FromNode) -> bool:
        """One frame. False when too many wait for that node already, or this one is closing."""
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
        """Frames for a node whose turn has yet to come, in order."""
        batcher = self._nodes.get(node)
        return () if batcher is None else list(batcher.waiting())

    def forget(self, nodes: Iterable[str]) -> None:
        """Nodes that are gone."""
        for node in nodes:
            self._nodes.pop(node, None)
            self._links.forget(node)

    async def close(self) -> None:
        """Send what waits, and take no more."""
        await asyncio.gather(*[batcher.close() for batcher in self._nodes.values()])

    async def _send(self, node: str, some: Sequence[FromNode]) -> Sequence[None]:
        why = ""
        left: list[FromNode] = []
        for part in frames.split([frame for frame in some if self._is_wanted(node, frame)], SIZE):
            if not why and part:
                why = await self._post(node, part)
            if why:
                # Nor what is behind it, which would overtake it.
                left += part
            else:
                SENT.inc(len(part))
        if left:
            UNSENT.labels(why).inc(len(left))
            self._unsent(node, left)
        return [None] * len(some)

    async def _post(self, node: str, part: list[FromNode]) -> str:
        """Why it was not taken, empty when it was. The next packet waits for this one: so the frames stay in order."""
        try:
            await self._links.post(node, frames.encode(part))
        except NodeAway as error:
            log.debug("packet.unsent", extra={"node": node, "frames": len(part), "error": str(error)})
            return "away"
        except Exception:
            # Whoever waits for an answer to it would wait in vain.
            log.exception("packet.failed", extra={"node": node, "frames": len(part)})
            return "failed"
        return ""
