"""Links between two nodes: the frames on them, and what happens to frames when a link breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from harness import metrics
from network.cluster import frames, links
from network.cluster.frames import FromNode, LinkAddress
from network.cluster.links import NodeLinks, NodeUnavailable
from network.cluster.outbox import Outbox
from network.cluster.redis_client import RedisUnavailable
from network.errors import CannotListen
from network.settings import Cluster
from tests.authority import Authority
from tests.network.support import TIMEOUT
from tidings.net.tls import TlsFiles
from tidings.wire import connection as wire

ME, OTHER = "me.1", "other.2"
REDIS = "redis://127.0.0.1:6379"
PLAIN = TlsFiles()


class PlayedMembership:
    """Membership whose nodes are reachable at the addresses that they announced."""

    def __init__(self, me: str, addresses: dict[str, LinkAddress]) -> None:
        self.me = me
        self.addresses = addresses
        self.is_away = False

    async def find_link(self, node: str) -> LinkAddress | None:
        if self.is_away:
            raise RedisUnavailable("played")
        return self.addresses.get(node)


class Peer:
    """One node as the links of another see it."""

    def __init__(self, name: str, addresses: dict[str, LinkAddress], files: TlsFiles = PLAIN) -> None:
        self.name = name
        self.membership = PlayedMembership(name, addresses)
        self.links = NodeLinks(self.membership, Cluster(url=REDIS), files)
        self.heard: list[tuple[str, FromNode]] = []

    async def open(self) -> None:
        self.membership.addresses[self.name] = await self.links.open(self._received)

    def _received(self, source: str, frame: FromNode) -> None:
        if isinstance(frame, frames.Hello):
            raise ValueError("a defect")
        self.heard.append((source, frame))

    async def say(self, node: str, *some: FromNode) -> None:
        async with asyncio.timeout(TIMEOUT):
            await self.links.post(node, frames.encode(list(some)))


class Pair:
    """Two nodes with links to each other."""

    def __init__(self, files: TlsFiles = PLAIN, other_files: TlsFiles = PLAIN) -> None:
        addresses: dict[str, LinkAddress] = {}
        self.me, self.other = Peer(ME, addresses, files), Peer(OTHER, addresses, other_files)

    async def open(self) -> Pair:
        await self.me.open()
        await self.other.open()
        return self

    def close(self) -> None:
        self.me.links.close()
        self.other.links.close()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = await Pair().open()
    yield pair
    pair.close()


@pytest.fixture
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "RETRY_SECONDS", 0.0)


class Raw:
    """Caller that sends any bytes."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.responses: asyncio.Queue[object] = asyncio.Queue()

    async def call(self, address: LinkAddress) -> wire.Connection:
        return await wire.connect(address.host, address.port, frames.LinkResponse, self)

    def opened(self, connection: wire.Connection) -> None: ...

    def received(self, connection: wire.Connection, frame: object) -> None:
        self.responses.put_nowait(frame)

    def closed(self, connection: wire.Connection, reason: str) -> None:
        self.gone.set()


async def test_both_nodes_receive_frames_in_order(pair: Pair) -> None:
    await pair.me.say(OTHER, frames.Moved(1), frames.Moved(2))
    await pair.me.say(OTHER, frames.Moved(3))
    await pair.other.say(ME, frames.ReadAll())
    assert pair.other.heard == [(ME, frames.Moved(n)) for n in (1, 2, 3)]
    assert pair.me.heard == [(OTHER, frames.ReadAll())]


async def test_a_frame_that_cannot_be_handled_does_not_block_later_ones(pair: Pair) -> None:
    await pair.me.say(OTHER, frames.Hello(), frames.Moved(1))
    assert pair.other.heard == [(ME, frames.Moved(1))]


async def test_a_batch_of_an_unknown_version_does_not_end_the_link(pair: Pair) -> None:
    await pair.me.links.post(OTHER, b"\xc1")
    await pair.me.say(OTHER, frames.Moved(1))
    assert pair.other.heard == [(ME, frames.Moved(1))]


async def test_known_frames_in_a_batch_of_another_version_are_handled(pair: Pair) -> None:
    expel = frames.Expel("15550100001", 0, 7)
    async with asyncio.timeout(TIMEOUT):
        await pair.me.links.post(OTHER, msgspec.msgpack.encode([{"t": "of a later version", "n": 1}, expel]))
    assert pair.other.heard == [(ME, expel)]


async def test_a_node_with_a_wrong_token_is_refused(pair: Pair, no_rest: None) -> None:
    before = metrics.value("tidings_link_refused_total", why="wrong_key") or 0.0
    right = pair.me.membership.addresses[OTHER]
    pair.me.membership.addresses[OTHER] = LinkAddress(right.host, right.port, "an older node's, at the same port — ü")
    with pytest.raises(NodeUnavailable):
        await pair.me.say(OTHER, frames.Moved(1))
    assert pair.other.heard == []
    assert metrics.value("tidings_link_refused_total", why="wrong_key") == before + 1


async def test_frames_sent_before_the_token_are_refused(pair: Pair) -> None:
    caller = Raw()
    connection = await caller.call(pair.me.membership.addresses[ME])
    connection.send(frames.FrameBatch(frames.encode([frames.Moved(1)])))
    async with asyncio.timeout(TIMEOUT):
        await caller.gone.wait()
    assert pair.me.heard == []


async def test_a_second_connection_of_a_node_replaces_the_first(pair: Pair) -> None:
    address = pair.me.membership.addresses[ME]
    first, second = Raw(), Raw()
    for caller in (first, second):
        connection = await caller.call(address)
        connection.send(frames.Call(OTHER, address.token))
        connection.send(frames.FrameBatch(frames.encode([frames.Moved(1)])))
        async with asyncio.timeout(TIMEOUT):
            assert await caller.responses.get() == frames.Taken()
    async with asyncio.timeout(TIMEOUT):
        await first.gone.wait()
    assert not second.gone.is_set()


async def test_a_batch_not_accepted_in_time_ends_the_link(
    pair: Pair, no_rest: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.me.say(OTHER, frames.Moved(1))
    monkeypatch.setattr(links, "TIMEOUT", 0.05)
    monkeypatch.setattr(wire.Connection, "send", lambda connection, frame: None)
    with pytest.raises(NodeUnavailable):
        await pair.me.say(OTHER, frames.Moved(2))
    monkeypatch.undo()
    monkeypatch.setattr(links, "RETRY_SECONDS", 0.0)
    await pair.me.say(OTHER, frames.Moved(3))
    assert pair.other.heard == [(ME, frames.Moved(1)), (ME, frames.Moved(3))]


async def test_a_lost_connection_to_a_node_is_reestablished(pair: Pair, no_rest: None) -> None:
    await pair.me.say(OTHER, frames.Moved(1))
    (connection,) = pair.other.links._callers.values()
    connection.abort("played")
    with pytest.raises(NodeUnavailable):
        await pair.me.say(OTHER, frames.Moved(2))
        await pair.me.say(OTHER, frames.Moved(2))
    await pair.me.say(OTHER, frames.Moved(3))
    assert pair.other.heard[-1] == (ME, frames.Moved(3))


async def test_no_connection_is_attempted_for_a_while_after_a_failure(pair: Pair) -> None:
    pair.me.membership.is_away = True
    with pytest.raises(NodeUnavailable, match="played"):
        await pair.me.say(OTHER, frames.Moved(1))
    pair.me.membership.is_away = False
    with pytest.raises(NodeUnavailable, match="a moment ago"):
        await pair.me.say(OTHER, frames.Moved(1))


async def test_the_address_of_a_node_is_looked_up_once(pair: Pair) -> None:
    await pair.me.say(OTHER, frames.Moved(1))
    pair.me.membership.is_away = True
    (connection,) = pair.other.links._callers.values()
    connection.close("played")
    pair.me.links._links[OTHER].end("played")
    await pair.me.say(OTHER, frames.Moved(2))
    assert pair.other.heard == [(ME, frames.Moved(1)), (ME, frames.Moved(2))]


async def test_a_node_without_a_known_address_is_away(pair: Pair) -> None:
    with pytest.raises(NodeUnavailable, match="has published no address"):
        await pair.me.say("third.3", frames.Moved(1))


async def test_the_link_to_a_dead_node_is_closed_at_once(pair: Pair) -> None:
    await pair.me.say(OTHER, frames.Moved(1))
    connection = pair.me.links._links[OTHER]._connection
    assert connection is not None
    pair.me.links.drop(OTHER)
    assert not connection.is_open


async def test_late_frames_for_a_departed_node_leave_nothing_behind(pair: Pair) -> None:
    outbox = Outbox(pair.me.links, lambda node, some: None, lambda node, frame: True)
    async with asyncio.timeout(TIMEOUT):
        for n in (1, 2):
            # The second one responds to a frame that was being processed when the node left.
            outbox.put(OTHER, frames.Moved(n))
            outbox.evict({ME})
            await outbox._nodes[OTHER].submit(frames.Moved(10 * n))
            outbox.evict({ME, OTHER})
            assert outbox._nodes.keys() == pair.me.links._links.keys() == {OTHER}
            if n == 1:
                outbox.drop([OTHER])
        await outbox._nodes[OTHER].close()
    outbox.evict({ME})
    assert not outbox._nodes
    assert not pair.me.links._links
    assert [frame for _, frame in pair.other.heard] == [frames.Moved(n) for n in (1, 10, 2, 20)]


async def test_nodes_with_certificates_of_the_installation_connect(tmp_path: Path) -> None:
    ours = Authority()
    pair = await Pair(ours.files(tmp_path, "me", "me"), ours.files(tmp_path, "other", "other")).open()
    await pair.me.say(OTHER, frames.Moved(1))
    await pair.other.say(ME, frames.Moved(2))
    assert pair.other.heard == [(ME, frames.Moved(1))]
    assert pair.me.heard == [(OTHER, frames.Moved(2))]
    pair.close()


@pytest.mark.parametrize("theirs", ["of another authority", "none"])
async def test_a_node_without_a_certificate_of_the_installation_is_refused(tmp_path: Path, theirs: str) -> None:
    files = Authority("Another authority").files(tmp_path, "me", "me") if theirs != "none" else PLAIN
    pair = await Pair(files, Authority().files(tmp_path, "other", "other")).open()
    with pytest.raises(NodeUnavailable):
        await pair.me.say(OTHER, frames.Moved(1))
    assert pair.other.heard == []
    pair.close()


async def test_an_address_in_use_or_a_missing_certificate_is_reported(pair: Pair, tmp_path: Path) -> None:
    taken = pair.me.membership.addresses[ME]
    cluster = Cluster(url=REDIS, node_address=(taken.host, taken.port))
    with pytest.raises(CannotListen, match="TIDINGS_NETWORK_NODE_ADDRESS"):
        await NodeLinks(pair.me.membership, cluster, PLAIN).open(lambda *_: None)
    with pytest.raises(CannotListen, match="TIDINGS_TLS_CERTIFICATE"):
        NodeLinks(pair.me.membership, cluster, TlsFiles(*[str(tmp_path / "missing")] * 3))
