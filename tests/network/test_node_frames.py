"""Frames between nodes, over a Redis that is played: what one of them does not break for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import msgspec
import pytest
from redis.exceptions import RedisClusterException, SlotNotCoveredError

from network.cluster import frames, server
from network.cluster.frames import FromNode, Packet
from network.cluster.membership import readable_loads
from network.cluster.server import RedisAway
from network.cluster.streams import Inbox

ME, OTHER = "me.1", "other.2"


class PlayedServer:
    """Streams in memory. packets: that are read, each at a time; then reading raises `end`, or waits."""

    def __init__(self, packets: Sequence[bytes] = (), end: Exception | None = None) -> None:
        self.packets = list(packets)
        self.end = end

    def key(self, *words: str) -> str:
        return ":".join(words)

    async def read(self, stream: str, after: str) -> list[tuple[str, bytes]]:
        if self.packets:
            return [("1", self.packets.pop(0))]
        if self.end is not None:
            raise self.end
        await asyncio.Event().wait()
        raise AssertionError

    async def trim(self, stream: str, before: str) -> None: ...


@pytest.mark.parametrize("error", [RedisClusterException("no node"), SlotNotCoveredError("no slot")])
async def test_a_redis_cluster_out_of_reach_is_redis_that_is_away(error: Exception) -> None:
    class Client:
        async def hgetall(self, key: str) -> None:
            raise error

    connections = server.Server.__new__(server.Server)
    connections._client = Client()
    with pytest.raises(RedisAway):
        await connections.fields("key")


def test_the_load_of_a_node_that_cannot_be_read_is_left_out() -> None:
    load = frames.Load("one", load=0.5)
    assert readable_loads({"a": msgspec.json.encode(load), "b": b'{"name": 5}', "c": b"\xff"}) == {"a": load}


async def test_a_frame_that_cannot_be_handled_does_not_keep_those_behind_it() -> None:
    seen: list[FromNode] = []
    done = asyncio.Event()

    def received(source: str, frame: FromNode) -> None:
        if isinstance(frame, frames.Hello):
            raise ValueError("a defect")
        seen.append(frame)
        if isinstance(frame, frames.LookAtAll):
            done.set()

    packets = [[frames.Hello(), frames.Moved(1)], [frames.Hello(), frames.LookAtAll()]]
    played = PlayedServer([frames.encode(Packet(OTHER, packet)) for packet in packets])
    stop = asyncio.Event()
    running = asyncio.create_task(Inbox(played, ME, received).run(stop))
    async with asyncio.timeout(5):
        await done.wait()
        stop.set()
        await running
    assert seen == [frames.Moved(1), frames.LookAtAll()]


async def test_an_inbox_that_cannot_read_any_more_ends_with_the_error() -> None:
    running: Awaitable[None] = Inbox(PlayedServer(end=KeyError("p")), ME, lambda *_: None).run(asyncio.Event())
    with pytest.raises(KeyError):
        async with asyncio.timeout(5):
            await running
