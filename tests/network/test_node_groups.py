"""Group messages and notices of changes between nodes: each device receives them in the order in which they were
stored, although different nodes announce them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from harness.redis_server import RedisServer
from network.cluster import frames, mailbox_polls
from network.cluster.forwards import RecentLogins
from network.cluster.frames import FromNode
from network.cluster.outbox import Outbox
from network.cluster.relocation_check import RelocationCheck
from tests.conftest import DatabaseFactory
from tests.network.group_support import changes, code_of, done, group_send, make
from tests.network.support import ALICE, BOB, CAROL, DAVE, TIMEOUT, Client, Network
from tests.network.test_node_order import arrive
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device

# Node that serves all HTTP calls of these tests, and so stores the notices of changes.
LAST = 2


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


@pytest.fixture
async def network(
    database_factory: DatabaseFactory, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Network]:
    """Network of three nodes that reads mailboxes after announcements only: not in polls, nor because of a login."""
    monkeypatch.setattr(mailbox_polls, "INTERVAL", 600.0)
    monkeypatch.setattr(RecentLogins, "has", lambda recent, sender: False)
    database = await database_factory("network")
    network = Network(database.settings, "tcp", nodes=3, redis=redis.url)
    await network.start()
    yield network
    await network.remove()


class DelayedAnnouncements:
    """Announcements of one node, which are held until `release`: of the first node that stores after `hold`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._is_on = False
        self._node: RelocationCheck | None = None
        self._held: list[tuple[str, tuple[Envelope, ...]]] = []
        self._stored = stored = RelocationCheck.stored

        def is_stored(relocation_check: RelocationCheck, number: str, rows: Iterable[Envelope] = ()) -> None:
            if self._is_on and self._node is None:
                self._node = relocation_check
            if self._is_on and self._node is relocation_check:
                self._held.append((number, tuple(rows)))
            else:
                stored(relocation_check, number, rows)

        monkeypatch.setattr(RelocationCheck, "stored", is_stored)

    def hold(self) -> None:
        self._is_on = True

    def release(self) -> None:
        assert self._node is not None
        self._is_on = False
        for number, rows in self._held:
            self._stored(self._node, number, rows)


@pytest.fixture
def delayed(monkeypatch: pytest.MonkeyPatch) -> DelayedAnnouncements:
    return DelayedAnnouncements(monkeypatch)


async def sees(client: Client, *expected: str) -> None:
    """Receive and acknowledge these messages and notices next, in this order. Ignore responses to sends.

    expected: the id of a message, or the kind of a notice.
    """
    for each in expected:
        while not isinstance(delivery := await client.next_frame(), device.Deliver):
            assert isinstance(delivery, device.Accepted), delivery
        client.ack(delivery)
        assert (delivery.id if delivery.kind == device.GROUP else delivery.kind) == each


@pytest.mark.parametrize("node", [0, 1])
async def test_a_message_does_not_overtake_the_notice_of_an_earlier_change(
    network: Network, delayed: DelayedAnnouncements, node: int
) -> None:
    await network.register(ALICE, BOB, CAROL)
    group = await make(network, ALICE, BOB)
    code = await code_of(network, ALICE, group)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=node)
    await changes(alice, 2)
    await changes(bob, 1)
    group_send(alice, ALICE, group, "m0", 2)
    await sees(bob, "m0")
    delayed.hold()
    await done(network, "POST", CAROL, "/join", {"code": code})
    group_send(alice, ALICE, group, "m1", 3)
    await sees(bob, device.GROUP_CHANGED, "m1")
    await done(network, "PUT", ALICE, f"/{group}", {"subject": "Dinner"})
    group_send(alice, ALICE, group, "m2", 3)
    await sees(bob, device.GROUP_CHANGED, "m2")
    delayed.release()
    group_send(alice, ALICE, group, "m3", 3)
    await sees(bob, "m3")


async def test_participants_without_a_copy_of_the_first_message_receive_the_notice_before_the_second(
    network: Network, delayed: DelayedAnnouncements
) -> None:
    await network.register(ALICE, BOB, CAROL, DAVE)
    group = await make(network, ALICE, BOB, CAROL)
    code = await code_of(network, ALICE, group)
    await network.request("PUT", f"/v1/blocks/{BOB}/{CAROL}", token=network.tokens[BOB])
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    carol = await network.connect(CAROL, node=0)
    await changes(alice, 3)
    await changes(bob, 2)
    await changes(carol, 1)
    delayed.hold()
    await done(network, "POST", DAVE, "/join", {"code": code})
    # Neither Carol, who is its author, nor Bob, who blocks her, receives it.
    group_send(carol, CAROL, group, "m1", 4)
    await sees(alice, device.GROUP_CHANGED, "m1")
    group_send(alice, ALICE, group, "m2", 4)
    await sees(bob, device.GROUP_CHANGED, "m2")
    await sees(carol, device.GROUP_CHANGED, "m2")
    delayed.release()


async def test_a_notice_does_not_overtake_an_earlier_message_of_another_node(
    network: Network, delayed: DelayedAnnouncements
) -> None:
    await network.register(ALICE, BOB, CAROL, DAVE)
    group = await make(network, ALICE, BOB)
    code = await code_of(network, ALICE, group)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=LAST)
    dave = await network.connect(DAVE, node=LAST)
    await changes(alice, 2)
    await changes(bob, 1)
    delayed.hold()
    group_send(alice, ALICE, group, "m1", 2)
    await alice.accepted(1)
    # The number of this envelope is higher than that of the message.
    dave.send(DAVE, BOB, "private")
    await arrive(bob, "private")
    await done(network, "POST", CAROL, "/join", {"code": code})
    await sees(bob, "m1", device.GROUP_CHANGED)
    delayed.release()


class LossyLink:
    """Links that lose the first announcement of envelopes for Bob, once a later one waits behind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.losing = asyncio.Event()
        self._is_over = False
        post = Outbox._post

        async def posted(outbox: Outbox, node: str, part: list[FromNode]) -> str:
            if self._is_over or not any(map(_is_for_bob, part)):
                return await post(outbox, node, part)
            self._is_over = True
            self.losing.set()
            while not any(map(_is_for_bob, outbox.waiting(node))):  # noqa: ASYNC110 (it comes over a connection)
                await asyncio.sleep(0)
            return "away"

        monkeypatch.setattr(Outbox, "_post", posted)


def _is_for_bob(frame: FromNode) -> bool:
    return isinstance(frame, frames.Stored) and frame.number == BOB


async def test_messages_keep_their_order_when_the_announcement_of_the_first_is_lost(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    await network.register(ALICE, BOB)
    group = await make(network, ALICE, BOB)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    await changes(alice, 2)
    await changes(bob, 1)
    group_send(alice, ALICE, group, "m0", 2)
    await sees(bob, "m0")
    link = LossyLink(monkeypatch)
    async with asyncio.timeout(TIMEOUT):
        group_send(alice, ALICE, group, "m1", 2)
        await link.losing.wait()
        group_send(alice, ALICE, group, "m2", 2)
        await sees(bob, "m1", "m2")


async def test_a_message_does_not_overtake_a_notice_when_the_announcement_of_the_first_message_is_lost(
    network: Network, delayed: DelayedAnnouncements, monkeypatch: pytest.MonkeyPatch
) -> None:
    await network.register(ALICE, BOB, CAROL)
    group = await make(network, ALICE, BOB)
    code = await code_of(network, ALICE, group)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    await changes(alice, 2)
    await changes(bob, 1)
    delayed.hold()
    await done(network, "POST", CAROL, "/join", {"code": code})
    link = LossyLink(monkeypatch)
    async with asyncio.timeout(TIMEOUT):
        group_send(alice, ALICE, group, "m1", 3)
        await link.losing.wait()
        group_send(alice, ALICE, group, "m2", 3)
        await sees(bob, device.GROUP_CHANGED, "m1", "m2")
    delayed.release()
