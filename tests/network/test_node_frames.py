"""Frames between nodes, over a Redis that is played: what one of them does not break for the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import msgspec
import pytest
from redis.exceptions import RedisClusterException, SlotNotCoveredError

from network.cluster import frames, server, streams
from network.cluster.forwards import Forward, Forwards
from network.cluster.frames import FromNode, Packet
from network.cluster.membership import readable_loads
from network.cluster.server import RedisAway, Script
from network.cluster.streams import Inbox, Outbox
from network.settings import Limits
from tidings.wire import device

ME, OTHER = "me.1", "other.2"


class PlayedServer:
    """Streams in memory.

    packets: that are read, each at a time; then reading raises `end`, or waits.
    places:  for each try to write whether there is room; then there is none.
    """

    def __init__(
        self, packets: Sequence[bytes] = (), end: Exception | None = None, places: Sequence[bool] = ()
    ) -> None:
        self.packets = list(packets)
        self.end = end
        self.places = list(places)
        self.posted: list[FromNode] = []

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

    async def run(self, script: Script, key: str, limit: int, milliseconds: int, packet: bytes) -> int:
        if not self.places or not self.places.pop(0):
            return 0
        self.posted += frames.decode(packet).frames
        return 1


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


def an_envelope(n: int, id: str, **more: int) -> device.Send:
    return device.Send(n, "15550100001", "15550100002", id, device.MESSAGE, b"body", **more)


async def send(
    played: PlayedServer, some: Sequence[FromNode], wanted: Sequence[FromNode] | None = None
) -> list[FromNode]:
    """Those of the frames that were reported as unsent."""
    unsent: list[FromNode] = []
    box = Outbox(
        played,
        ME,
        lambda node, frames: unsent.extend(frames),
        is_wanted=lambda node, frame: wanted is None or frame in wanted,
    )
    for frame in some:
        assert box.put(OTHER, frame)
    await box.close()
    return unsent


async def test_frames_wait_in_their_order_for_a_place_in_a_full_stream() -> None:
    some = [frames.Moved(n) for n in range(3 * streams.FRAMES)]
    played = PlayedServer(places=[False, False, True, False, True, True])
    assert await send(played, some) == []
    assert played.posted == some


async def test_what_is_behind_a_packet_that_was_not_sent_does_not_overtake_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FULL_SECONDS", 0.01)
    monkeypatch.setattr(streams, "SIZE", 1)
    some = [frames.Moved(n) for n in range(3)]
    played = PlayedServer(places=[True, *[False] * streams.FULL_TRIES, True])
    assert await send(played, some) == some[1:]
    assert played.posted == some[:1]


async def test_a_packet_that_cannot_be_written_is_reported_as_unsent() -> None:
    poisoned = [frames.Moved(1), frames.Forward(2, an_envelope(1, "m", ttl=2**70))]
    assert await send(PlayedServer(places=[True]), poisoned) == poisoned


async def test_an_envelope_that_nobody_waits_for_any_more_is_not_sent() -> None:
    some = [frames.Forward(n, an_envelope(n, f"m{n}")) for n in range(3)]
    played = PlayedServer(places=[True])
    assert await send(played, some, wanted=some[1:2]) == []
    assert played.posted == some[1:2]


class Superseded:
    """A sender who keeps the numbers that are superseded."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def superseded(self, n: int) -> None:
        self.numbers.append(n)


def test_an_envelope_on_its_way_stays_as_it_is_and_only_its_node_answers_for_it() -> None:
    forwards, first, second = Forwards(Limits()), Superseded(), Superseded()
    envelope = an_envelope(70, "m")
    n = forwards.add(Forward(envelope, first, OTHER, 1.0, 1))
    assert forwards.is_repeat(second, an_envelope(71, "m"))
    assert first.numbers == [70]
    assert forwards.take(n, "another.3") is None
    taken = forwards.take(n, OTHER)
    assert taken is not None
    assert (taken.origin, taken.n, taken.frame.n) == (second, 71, 71)
    assert envelope == an_envelope(70, "m")
    assert not forwards.is_waiting(n, OTHER)
