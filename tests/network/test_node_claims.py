"""Claims of a node over a simulated Redis: their state after a failure in the middle of an operation."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Sequence, Set
from typing import Any

from network.cluster import frames, presence
from network.cluster.frames import Claim, FromNode, Load
from network.cluster.links import NodeUnavailable
from network.cluster.membership import MembershipChange, NodeMembership
from network.cluster.node import ClusterNode
from network.cluster.presence import Presence
from network.cluster.redis_client import RedisUnavailable, Script
from network.settings import Cluster, Limits
from tests.manual_clock import ManualClock
from tidings.wire import device

ME, OTHER = "me.1", "other.2"
ALICE = "15550100001"


class PlayedServer:
    """Redis that records claims and releases, and runs a given action before it responds to a claim."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.before = before
        self.claims: list[str] = []
        self.releases: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered, self.released = asyncio.Event(), asyncio.Event()

    def key(self, *words: str) -> str:
        return ":".join(words)

    async def run_all(self, script: Script, steps: Sequence[tuple[str, Sequence[object]]]) -> list[list[bytes]]:
        if script is presence._RELEASE:
            self.releases += [str(arguments[1]) for _, arguments in steps]
            self.released.set()
        else:
            self.entered.set()
            await self.gate.wait()
            self.before()
            self.claims += [" ".join(map(str, arguments[1:6])) for _, arguments in steps]
        return [[b"ok"] for _ in steps]


class PlayedLinks:
    """Links to nodes that are unreachable for a given number of attempts."""

    def __init__(self, away: int = 0) -> None:
        self.away = away
        self.taken: list[FromNode] = []

    async def post(self, node: str, packet: bytes) -> None:
        if self.away:
            self.away -= 1
            raise NodeUnavailable("played")
        self.taken += frames.decode(packet)

    def drop(self, node: str) -> None: ...

    def evict(self, kept: Set[str]) -> None: ...


def away() -> None:
    raise RedisUnavailable("played")


def membership() -> types.SimpleNamespace:
    return types.SimpleNamespace(me=ME, nodes=frozenset({ME, OTHER}), is_redis_up=True, on_change=None)


def a_presence(server: PlayedServer) -> Presence:
    return Presence(server, membership(), on_replaced=lambda *_: None, on_lost=lambda *_: None)


def a_node(server: PlayedServer, links: PlayedLinks | None = None) -> ClusterNode:
    router = types.SimpleNamespace(
        attached=lambda: [],
        read_mailbox=lambda number: None,
        require_read=lambda number="": None,
        is_storing=lambda frame: False,
        clock=ManualClock(),
        limits=Limits(),
    )
    return ClusterNode(server, membership(), links or PlayedLinks(), router, directory=None, mailboxes=None)


async def test_a_login_cancelled_during_its_claim_leaves_no_claim() -> None:
    server = PlayedServer()
    server.gate.clear()
    mine = a_presence(server)
    login = asyncio.create_task(mine.claim(ALICE, 0, device.WHOLE))
    async with asyncio.timeout(30):
        await server.entered.wait()
        login.cancel()
        await asyncio.gather(login, return_exceptions=True)
        server.gate.set()
        await server.released.wait()
    assert server.releases == server.claims
    assert not mine.unclaimed


async def test_a_cancelled_login_returns_its_claim_to_the_attached_device() -> None:
    server = PlayedServer()
    mine = a_presence(server)
    assert await mine.claim(ALICE, 0, device.WHOLE)
    server.entered.clear()
    server.gate.clear()
    login = asyncio.create_task(mine.claim(ALICE, 0, device.WHOLE))
    async with asyncio.timeout(30):
        await server.entered.wait()
        login.cancel()
        server.gate.set()
        await server.released.wait()
    assert server.releases == server.claims[1:]
    assert mine.unclaimed


async def test_a_claim_missing_in_redis_is_repeated_soon() -> None:
    server = PlayedServer(away)
    node = a_node(server)
    assert await node.claim(ALICE, 0, device.WHOLE)
    assert server.claims == []
    server.before = lambda: None
    async with asyncio.timeout(30):
        while not server.claims:
            node.run_once()
            await asyncio.sleep(0)
    assert not node.presence.unclaimed


async def test_a_failed_renewal_is_followed_by_a_repetition_of_all_claims() -> None:
    class AwayOnce(PlayedServer):
        async def run_all(self, script: Script, steps: Sequence[tuple[str, Sequence[object]]]) -> list[Any]:
            if script is presence._RENEW:
                away()
            return await super().run_all(script, steps)

    server = AwayOnce()
    node = a_node(server)
    assert await node.claim(ALICE, 0, device.WHOLE)
    await node.presence.renew()
    assert node.presence.unclaimed
    async with asyncio.timeout(30):
        while len(server.claims) < 2:
            node.run_once()
            await asyncio.sleep(0)
    assert server.claims[0] == server.claims[1]


async def test_state_changed_while_a_repetition_of_claims_fails_is_kept() -> None:
    def change() -> None:
        node._announcements.incomplete = node.exchange.relocation_check.has_unlocated = True
        away()

    server = PlayedServer()
    node = a_node(server)
    assert await node.claim(ALICE, 0, device.WHOLE)
    server.before = change
    node.presence.unclaimed = True
    await node._catch_up()
    assert node._announcements.incomplete
    assert node.exchange.relocation_check.has_unlocated


async def test_an_expel_frame_for_an_unreachable_node_is_sent_again_later() -> None:
    links = PlayedLinks(away=1)
    node = a_node(PlayedServer(), links)
    node._replaced((ALICE, 0), Claim(0, 1, 0, 7, OTHER))
    async with asyncio.timeout(30):
        while not links.taken:
            node.run_once()
            await asyncio.sleep(0)
    assert links.taken == [frames.Expel(ALICE, 0, 7)]


async def test_repeated_requests_to_read_all_mailboxes_share_a_read() -> None:
    node, numbers, read = a_node(PlayedServer()), [f"1555010{n:04}" for n in range(300)], list[str]()

    def read_one(number: str) -> None:
        read.append(number)
        if len(read) == 1:
            # What was stored before this request may be in a mailbox that was read already.
            node._received(OTHER, frames.ReadAll())

    node.router.attached = lambda: iter(numbers)  # type: ignore[method-assign]
    node.router.read_mailbox = read_one  # type: ignore[method-assign, assignment]
    for _ in range(50):
        node._received(OTHER, frames.ReadAll())
    async with asyncio.timeout(30):
        while node._tasks:
            await asyncio.gather(*node._tasks)
    assert read == [*numbers, *numbers]


async def test_frames_of_nodes_that_are_no_members_leave_nothing_behind_after_a_minute() -> None:
    node = a_node(PlayedServer())
    for n in range(100):
        # An envelope of a node that has left, for a device that is not here.
        node.exchange.received(f"departed.{n}", frames.Forward(1, device.Send(1, ALICE, ALICE, "id", "message", b"")))
    async with asyncio.timeout(30):
        while node.exchange.outbox._nodes:
            node.run_once()
            await asyncio.sleep(0)
    assert not node.exchange._origins


async def test_a_new_redis_server_receives_all_claims_again() -> None:
    class PlayedBeats:
        run_id, primaries = b"first", frozenset[str]()

        def key(self, *words: str) -> str:
            return ":".join(words)

        async def run(self, *_: object) -> list[bytes]:
            return [b"1", self.run_id, b"0", members.me.encode()]

        async def set_field(self, *_: object) -> None: ...

        async def read_fields(self, key: str) -> dict[bytes, bytes]:
            return {}

    changes: list[MembershipChange] = []

    async def changed(change: MembershipChange) -> None:
        changes.append(change)

    server: Any = PlayedBeats()
    members = NodeMembership(server, Cluster(), lambda: Load("me"))
    members.on_change = changed
    await members.run_once()
    changes.clear()
    await members.run_once()
    assert changes == []
    server.run_id = b"second"
    await members.run_once()
    assert [change.was_away for change in changes] == [True]
    changes.clear()
    # A replica of the Redis cluster took over the slots of its primary.
    server.primaries = frozenset({"10.0.0.5:6379"})
    await members.run_once()
    assert [change.was_away for change in changes] == [True]
