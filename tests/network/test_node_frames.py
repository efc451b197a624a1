"""Frames to other nodes over simulated links: their order, and what happens to those that are not accepted."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from redis.exceptions import RedisClusterException, SlotNotCoveredError

from network.cluster import frames, outbox, redis_client
from network.cluster.forwards import Forwards, PendingForward
from network.cluster.frames import FromNode
from network.cluster.links import NodeUnavailable
from network.cluster.membership import readable_loads
from network.cluster.outbox import Outbox
from network.cluster.redis_client import RedisUnavailable
from network.settings import Limits
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device

OTHER = "other.2"


class PlayedLinks:
    """Links that accept a given number of batches, and no more after that."""

    def __init__(self, takes: int) -> None:
        self.takes = takes
        self.taken: list[FromNode] = []

    async def post(self, node: str, packet: bytes) -> None:
        if not self.takes:
            raise NodeUnavailable("played")
        self.takes -= 1
        self.taken += frames.decode(packet)


@pytest.mark.parametrize("error", [RedisClusterException("no node"), SlotNotCoveredError("no slot")])
async def test_an_unreachable_redis_cluster_counts_as_redis_away(error: Exception) -> None:
    class Client:
        async def hgetall(self, key: str) -> None:
            raise error

    connections = redis_client.RedisClient.__new__(redis_client.RedisClient)
    connections._client = Client()
    with pytest.raises(RedisUnavailable):
        await connections.read_fields("key")


def test_an_unreadable_load_of_a_node_is_skipped() -> None:
    load = frames.Load("one", load=0.5)
    assert readable_loads({"a": msgspec.json.encode(load), "b": b'{"name": 5}', "c": b"\xff"}) == {"a": load}


def an_envelope(n: int, id: str, **more: int) -> device.Send:
    return device.Send(n, "15550100001", "15550100002", id, device.MESSAGE, b"body", **more)


async def send(
    links: PlayedLinks, some: Sequence[FromNode], wanted: Sequence[FromNode] | None = None
) -> list[FromNode]:
    """Send frames and return those that were reported as unsent."""
    unsent: list[FromNode] = []
    box = Outbox(
        links,
        lambda node, frames: unsent.extend(frames),
        is_wanted=lambda node, frame: wanted is None or frame in wanted,
    )
    for frame in some:
        assert box.put(OTHER, frame)
    await box.close()
    return unsent


async def test_frames_are_sent_in_order() -> None:
    some = [frames.Moved(n) for n in range(3 * outbox.FRAMES)]
    links = PlayedLinks(takes=3)
    assert await send(links, some) == []
    assert links.taken == some


async def test_frames_behind_a_rejected_batch_do_not_overtake_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "SIZE", 1)
    some = [frames.Moved(n) for n in range(3)]
    links = PlayedLinks(takes=1)
    assert await send(links, some) == some[1:]
    assert links.taken == some[:1]


async def test_a_batch_that_cannot_be_encoded_is_reported_as_unsent() -> None:
    poisoned = [frames.Moved(1), frames.Forward(2, an_envelope(1, "m", ttl=2**70))]
    assert await send(PlayedLinks(takes=1), poisoned) == poisoned


async def test_an_envelope_that_is_no_longer_wanted_is_not_sent() -> None:
    some = [frames.Forward(n, an_envelope(n, f"m{n}")) for n in range(3)]
    links = PlayedLinks(takes=1)
    assert await send(links, some, wanted=some[1:2]) == []
    assert links.taken == some[1:2]


class Superseded:
    """Sender that keeps the numbers of superseded frames."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def superseded(self, n: int) -> None:
        self.numbers.append(n)


def test_a_forwarded_envelope_is_not_changed_and_only_its_node_can_settle_it() -> None:
    forwards, first, second = Forwards(Limits()), Superseded(), Superseded()
    envelope = an_envelope(70, "m")
    n = forwards.add(PendingForward(envelope, first, 1, node=OTHER, due=1.0, tries=1))
    assert forwards.redirect_repeat(second, an_envelope(71, "m"))
    assert first.numbers == [70]
    assert forwards.take(n, "another.3") is None
    taken = forwards.take(n, OTHER)
    assert taken is not None
    assert (taken.origin, taken.n, taken.frame.n) == (second, 71, 71)
    assert envelope == an_envelope(70, "m")
    assert not forwards.is_waiting(n, OTHER)


def test_a_part_of_stored_group_messages_fits_into_a_batch() -> None:
    rows = [
        Envelope(
            n,
            "15550100001",
            "x" * 27,
            1,
            2,
            b"",
            ["r" * 64] * 1000,
            "",
            "15550000000-1767225600",
            recipient=f"1555010{n:04}",
            kind="group",
            slot=0,
        )
        for n in range(255)
    ]
    stored = [frames.Stored(row.recipient, [row]) for row in rows]
    parts = frames.split(stored, outbox.SIZE)
    assert sum(map(len, parts)) == 255
    for part in parts:
        assert len(frames.encode(part)) <= 4 * 1024 * 1024
