"""Envelopes of one pair reach a recipient on another node in order, even if some of them had to be stored."""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncIterator, Sequence

import pytest

from harness.redis_server import RedisServer
from network.cluster import frames
from network.cluster.exchange import Exchange
from network.cluster.frames import Claim, Claims, FromNode
from network.cluster.location_cache import LocationCache
from network.cluster.outbox import Outbox
from network.cluster.presence import Presence
from network.cluster.relocation_check import RelocationCheck
from network.routing.mailbox import SqlMailbox
from network.settings import Limits
from tests.conftest import DatabaseFactory
from tests.manual_clock import ManualClock
from tests.network.router_support import Sender
from tests.network.support import TIMEOUT, Client, Network
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device

ALICE, BOB, CAROL, DAVE = (f"1555010000{n}" for n in range(1, 5))
ME, OTHER = "me.1", "other.2"


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


@pytest.fixture
async def network(database_factory: DatabaseFactory, redis: RedisServer) -> AsyncIterator[Network]:
    database = await database_factory("network")
    network = Network(database.settings, "tcp", nodes=3, redis=redis.url)
    yield network
    await network.remove()


async def arrive(client: Client, *ids: str) -> None:
    """Receive these envelopes next, in this order, and acknowledge them."""
    deliveries = await client.deliveries(len(ids))
    assert [delivery.id for delivery in deliveries] == list(ids)
    client.ack(*deliveries)


class SlowMailboxes:
    """Mailboxes of all nodes. They store nothing until the gate is open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate, self.entered = asyncio.Event(), asyncio.Event()
        change = SqlMailbox.change

        async def changed(store: SqlMailbox, stored: Sequence[Envelope], removed: Sequence[int]) -> None:
            if stored:
                self.entered.set()
                await self.gate.wait()
            await change(store, stored, removed)

        monkeypatch.setattr(SqlMailbox, "change", changed)


async def test_envelopes_do_not_overtake_one_that_another_node_did_not_accept(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB, CAROL)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    carol = await network.connect(CAROL, node=1)
    alice.send(ALICE, BOB, "before")
    await arrive(bob, "before")
    await alice.accepted(1)
    mailboxes, post = SlowMailboxes(monkeypatch), Outbox._post

    async def broken(outbox: Outbox, node: str, part: list[FromNode]) -> str:
        if not any(isinstance(frame, frames.Forward) and frame.send.id == "0" for frame in part):
            return await post(outbox, node, part)
        # These are behind the stored envelope, and already on their way.
        for id in "123":
            alice.send(ALICE, BOB, id)
        while outbox._nodes[node].pending < 3:  # noqa: ASYNC110 (they come over a connection)
            await asyncio.sleep(0)
        return "away"

    monkeypatch.setattr(Outbox, "_post", broken)
    async with asyncio.timeout(TIMEOUT):
        alice.send(ALICE, BOB, "0")
        await mailboxes.entered.wait()
        for id in "456":
            alice.send(ALICE, BOB, id)
        # The link works again, and other pairs use it.
        alice.send(ALICE, CAROL, "other")
        await arrive(carol, "other")
        mailboxes.gate.set()
        await arrive(bob, *"0123456")
        await alice.accepted(8)


async def test_envelopes_after_a_redis_outage_do_not_overtake_those_stored_during_it(
    network: Network, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    carol = await network.connect(CAROL, node=1)
    repeat_claims, gate = Presence.repeat_claims, asyncio.Event()

    async def slowly(presence: Presence) -> None:
        if ALICE in presence._held:
            await gate.wait()
        await repeat_claims(presence)

    monkeypatch.setattr(Presence, "repeat_claims", slowly)
    redis.kill9()
    try:
        alice.send(ALICE, BOB, "stored")
        await alice.accepted(1)
    finally:
        redis.start()
    async with asyncio.timeout(TIMEOUT):
        with redis.client() as client:
            keys = [f"{network.cluster.prefix}:at:{number}" for number in (BOB, CAROL)]
            while not all(map(client.exists, keys)):  # noqa: ASYNC110 (only Redis can say)
                await asyncio.sleep(0.01)
        ready = f"http://127.0.0.1:{network.nodes[0].addresses.http[1]}/health/ready"
        while (await network.http.get(ready)).status != 200:
            pass
        alice.send(ALICE, BOB, "later")
        alice.send(ALICE, CAROL, "other")
        await arrive(carol, "other")
        gate.set()
        await arrive(bob, "stored", "later")


async def test_envelopes_in_flight_at_a_device_move_precede_later_ones(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB, CAROL, DAVE)
    alice, former = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    carol, dave = await network.connect(CAROL, node=2), await network.connect(DAVE, node=1)
    alice.send(ALICE, BOB, "0")
    await former.deliveries(1)
    mailboxes, deliver, came = SlowMailboxes(monkeypatch), Exchange._deliver, asyncio.Event()

    def delivered(exchange: Exchange, source: str, frame: device.Send, *, read_first: bool) -> None:
        deliver(exchange, source, frame, read_first=read_first)
        if frame.id == "1":
            came.set()

    monkeypatch.setattr(Exchange, "_deliver", delivered)
    async with asyncio.timeout(TIMEOUT):
        bob = await network.connect(BOB, node=2)
        await mailboxes.entered.wait()
        alice.send(ALICE, BOB, "1")
        await came.wait()
        # When these arrive, all announcements about the node that he is attached to now have taken effect.
        dave.send(DAVE, ALICE, "back")
        await arrive(alice, "back")
        alice.send(ALICE, CAROL, "other")
        await arrive(carol, "other")
        mailboxes.gate.set()
        await arrive(bob, "0", "1")


class PlayedPresence:
    """Presence in which Bob is attached to the other node."""

    def __init__(self) -> None:
        self.gate, self.entered = asyncio.Event(), asyncio.Event()

    async def find_all(self, numbers: Sequence[str]) -> dict[str, Claims]:
        self.entered.set()
        await self.gate.wait()
        return {number: {0: Claim(0, 1, 0, 7, OTHER)} for number in numbers}


class PlayedOutbox:
    """Outbox that accepts what it has room for."""

    def __init__(self) -> None:
        self.frames: list[FromNode] = []
        self.has_room = True

    def put(self, node: str, frame: FromNode) -> bool:
        if self.has_room:
            self.frames.append(frame)
        return self.has_room


class Watched:
    """Relocation check with the parts that it depends on."""

    def __init__(self) -> None:
        self.presence, self.outbox, self.clock = PlayedPresence(), PlayedOutbox(), ManualClock()
        self.membership = types.SimpleNamespace(me=ME, nodes=frozenset({ME, OTHER}), is_redis_up=True)
        self.relocation_check = RelocationCheck(
            self.membership,
            self.presence,
            self.outbox,
            locations=LocationCache(self.clock),
            clock=self.clock,
            max_wait=2.0,
            read_here=lambda number: None,
        )

    async def look(self) -> None:
        """Run the relocation check: the node of each recipient with stored envelopes is found and notified."""
        self.presence.gate.set()
        looking = self.relocation_check._locating
        assert looking is not None
        async with asyncio.timeout(TIMEOUT):
            await looking


def a_row(id: str) -> Envelope:
    return Envelope(1, ALICE, id, 0, 2**50, b"body", [], recipient=BOB, kind=device.GROUP)


async def test_stored_rows_are_announced_only_if_all_of_them_are_known() -> None:
    for first, then in (((), (a_row("m"),)), ((a_row("m"),), ())):
        watched = Watched()
        watched.relocation_check.joined()
        watched.relocation_check.stored(BOB, first)
        watched.relocation_check.stored(BOB, then)
        await watched.look()
        assert watched.outbox.frames == [frames.Stored(BOB)]
        assert not watched.relocation_check.has_unannounced(BOB)
    watched = Watched()
    watched.relocation_check.joined()
    rows = [a_row("m"), a_row("n")]
    for row in rows:
        watched.relocation_check.stored(BOB, [row])
    # An envelope to him does not wait for what a group message has stored.
    assert not watched.relocation_check.has_unannounced(BOB)
    await watched.look()
    assert watched.outbox.frames == [frames.Stored(BOB, rows)]


async def test_a_node_that_missed_an_announcement_receives_no_rows() -> None:
    watched = Watched()
    watched.relocation_check.joined()
    watched.relocation_check.unsent(OTHER)
    watched.relocation_check.stored(BOB, [a_row("m")])
    await watched.look()
    assert watched.outbox.frames == [frames.Stored(BOB)]


async def test_waiting_for_stored_envelopes_ends_with_storage_or_after_a_time_limit() -> None:
    watched = Watched()
    sender = Sender()
    origin = watched.relocation_check.begin_storing(BOB, sender)
    settled = watched.relocation_check.when_announced(BOB)
    origin.accepted(5)
    watched.relocation_check.stored(BOB)
    assert sender.accepted_numbers == [5]
    late = watched.relocation_check.when_announced(BOB)
    assert settled.done()
    watched.clock.advance(1.9)
    watched.relocation_check.sweep()
    assert not late.done()
    await watched.look()
    assert late.result()
    watched.relocation_check.begin_storing(BOB, sender)
    late = watched.relocation_check.when_announced(BOB)
    watched.clock.advance(2.0)
    watched.relocation_check.sweep()
    assert not late.result()


async def test_a_node_that_missed_an_announcement_must_read_all_mailboxes_first() -> None:
    watched = Watched()
    watched.outbox.has_room = False
    watched.relocation_check.stored(BOB)
    await watched.look()
    watched.relocation_check.sweep()
    assert watched.relocation_check.must_read_all(OTHER)
    watched.outbox.has_room = True
    watched.relocation_check.sweep()
    assert not watched.relocation_check.must_read_all(OTHER)
    assert watched.outbox.frames == [frames.ReadAll()]
    watched.relocation_check.unsent(OTHER)
    assert watched.relocation_check.must_read_all(OTHER)
    # The other node is gone: none is left to notify.
    watched.membership.nodes = frozenset({ME})
    watched.relocation_check.sweep()
    assert watched.outbox.frames == [frames.ReadAll()]
    # When it is back, it is notified before it gets anything else.
    watched.membership.nodes = frozenset({ME, OTHER})
    assert not watched.relocation_check.must_read_all(OTHER)
    assert not watched.relocation_check.must_read_all(OTHER)
    assert watched.outbox.frames == [frames.ReadAll()] * 2
    watched.relocation_check.nodes_left(frozenset({OTHER}))
    assert not watched.relocation_check.must_read_all(OTHER)
    assert watched.outbox.frames == [frames.ReadAll()] * 3
