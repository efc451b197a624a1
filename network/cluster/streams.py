"""Frames from node to node: each node has a stream that the others write and only it reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec
from prometheus_client import Counter

from network.cluster import frames, scripts
from network.cluster.frames import FromNode, Packet
from network.cluster.server import BLOCK, RedisAway, Script, Server
from tidings.runtime.batcher import Batcher, BatcherClosed, BatcherFull
from tidings.runtime.service import run_workers

log = logging.getLogger(__name__)

SENT = Counter("tidings_network_node_frames_sent_total", "Frames written into other nodes' streams")
RECEIVED = Counter("tidings_network_node_frames_received_total", "Frames read from this node's stream")
UNSENT = Counter("tidings_network_node_frames_unsent_total", "Frames that were not sent", ["why"])

# Packets that may wait in one stream; one more is not sent.
PACKETS = 256
# Frames in one packet, bytes of their bodies, and frames that may wait for a node's turn.
FRAMES, SIZE, WAITING = 500, 1024 * 1024, 50_000
# Seconds that a packet waits for a place in a full stream, and times that it is tried meanwhile.
FULL_SECONDS, FULL_TRIES = 1.0, 40
# Seconds that a stream lasts which nobody writes.
STREAM_SECONDS = 300
# Packets read after which they are taken out of the stream.
TRIM = 32

_POST = Script(scripts.POST)


class Outbox:
    """What is on its way to other nodes. What arrives while a packet is being sent goes into the next.

    unsent(node, frames):   what another node will not get: its stream stays full, or Redis is away.
    is_wanted(node, frame): has it to be sent yet, now that it is its turn?
    """

    def __init__(
        self,
        server: Server,
        me: str,
        unsent: Callable[[str, Sequence[FromNode]], None],
        *,
        is_wanted: Callable[[str, FromNode], bool],
    ) -> None:
        self._server = server
        self._me = me
        self._unsent = unsent
        self._is_wanted = is_wanted
        # Nodes whose streams stayed full when they were written last: these are not waited for again.
        self._full: set[str] = set()
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
            self._full.discard(node)

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
        """Why it was not sent, empty when it was. The next packet waits for this one: so the frames stay in order."""
        try:
            packet = frames.encode(Packet(self._me, part))
            for again in range(FULL_TRIES):
                if await self._server.run(_POST, stream_of(self._server, node), PACKETS, STREAM_SECONDS * 1000, packet):
                    self._full.discard(node)
                    return ""
                if node in self._full or node not in self._nodes:
                    break
                if again < FULL_TRIES - 1:
                    await asyncio.sleep(FULL_SECONDS / FULL_TRIES)
        except RedisAway:
            return "away"
        except Exception:
            # Whoever waits for an answer to it would wait in vain.
            log.exception("packet.failed", extra={"node": node, "frames": len(part)})
            return "failed"
        if node in self._nodes:
            self._full.add(node)
        log.warning("stream.full", extra={"node": node, "frames": len(part)})
        return "full"


class Inbox:
    """Service that reads this node's stream.

    received(source, frame): called for each frame, in the order of their source.
    """

    name = "inbox"

    def __init__(self, server: Server, me: str, received: Callable[[str, FromNode], None]) -> None:
        self._server = server
        self._stream = stream_of(server, me)
        self._received = received
        self._last = "0"
        self._untrimmed = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`. Raises what ends the reading."""
        await run_workers(stop, self._read())

    async def remove(self) -> None:
        """Nobody will read the stream any more."""
        try:
            await self._server.remove(self._stream)
        except RedisAway as error:
            log.debug("stream.not_removed", extra={"error": str(error)})

    async def _read(self) -> None:
        while True:
            try:
                await self.run_once()
            except RedisAway:
                await asyncio.sleep(BLOCK / 4)

    async def run_once(self) -> None:
        """Read what is there, or wait for it; not for long. Raises `RedisAway`."""
        packets = await self._server.read(self._stream, self._last)
        for id_, data in packets:
            self._last = id_
            try:
                packet = frames.decode(data)
            except msgspec.MsgspecError as error:
                # Of another version, perhaps. Whoever sent it stores what is not answered.
                log.error("packet.unreadable", extra={"error": str(error)[:200]})
                continue
            RECEIVED.inc(len(packet.frames))
            for frame in packet.frames:
                try:
                    self._received(packet.source, frame)
                except Exception:
                    # Those behind it are others' business.
                    log.exception("frame.failed", extra={"node": packet.source, "frame": type(frame).__name__})
        self._untrimmed += len(packets)
        if self._untrimmed >= TRIM or (self._untrimmed and not packets):
            await self._server.trim(self._stream, self._last)
            self._untrimmed = 0


def stream_of(server: Server, node: str) -> str:
    """The key of a node's stream."""
    return server.key("to", node)
