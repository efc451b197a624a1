"""Streams between nodes. An envelope that one node stored or received without an announcement precedes later
ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import pytest

from harness.redis_server import RedisServer
from network.cluster import forwards, mailbox_polls
from network.cluster.exchange import Exchange
from network.cluster.mailbox_polls import MailboxPolls
from network.cluster.relocation_check import RelocationCheck
from network.cluster.shared_clock import SharedClock
from network.settings import Limits
from tests.conftest import DatabaseFactory
from tests.manual_clock import ManualClock
from tests.network.group_support import changes, make
from tests.network.support import TIMEOUT, Client, Network
from tests.network.test_node_order import arrive
from tidings.storage.network.mailbox import Envelope
from tidings.wire import device

ALICE, BOB, CAROL = (f"1555010000{n}" for n in range(1, 4))


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


@pytest.fixture
async def network(database_factory: DatabaseFactory, redis: RedisServer) -> AsyncIterator[Network]:
    database = await database_factory("network")
    network = Network(database.settings, "tcp", nodes=3, redis=redis.url)
    yield network
    await network.remove()


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable polls: only announcements lead to what is stored."""
    monkeypatch.setattr(mailbox_polls, "INTERVAL", 600.0)


class Mute:
    """Nodes that store envelopes for other nodes without announcing them, while `is_on` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on = False
        stored, choose = RelocationCheck.stored, Exchange._choose

        def is_stored(relocation_check: RelocationCheck, number: str, rows: Iterable[Envelope] = ()) -> None:
            if not self.is_on:
                stored(relocation_check, number, rows)

        def is_chosen(exchange: Exchange, *of: object) -> str:
            return "" if self.is_on else choose(exchange, *of)  # type: ignore[arg-type]

        monkeypatch.setattr(RelocationCheck, "stored", is_stored)
        monkeypatch.setattr(Exchange, "_choose", is_chosen)


async def store(mute: Mute, alice: Client, id: str) -> None:
    """Store Alice's envelope to Bob: it is accepted, and no other node is notified of it."""
    mute.is_on = True
    alice.send(ALICE, BOB, id)
    await alice.accepted(1)
    mute.is_on = False


async def test_unannounced_stored_envelopes_are_found_within_5_seconds(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute = Mute(monkeypatch)
    await network.start()
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    loop = asyncio.get_running_loop()
    for id in ("0", "1"):
        await store(mute, alice, id)
        begin = loop.time()
        await arrive(bob, id)
        assert loop.time() - begin < 5.0


@pytest.mark.parametrize("node", [1, 2], ids=["to the recipient's node", "to another node"])
async def test_a_sender_that_changes_nodes_does_not_overtake_unannounced_envelopes(
    network: Network, monkeypatch: pytest.MonkeyPatch, no_polls: None, node: int
) -> None:
    mute = Mute(monkeypatch)
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    await store(mute, alice, "stored")
    await alice.close()
    alice = await network.connect(ALICE, node=node)
    for id in ("later", "last"):
        alice.send(ALICE, BOB, id)
    await arrive(bob, "stored", "later", "last")


async def test_an_envelope_to_a_recipient_that_changed_nodes_does_not_overtake_unannounced_ones(
    network: Network, monkeypatch: pytest.MonkeyPatch, no_polls: None
) -> None:
    mute = Mute(monkeypatch)
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB, CAROL)
    with monkeypatch.context() as patch:
        # Alice's login is not recent.
        patch.setattr(forwards, "SECONDS", 0.0)
        alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
        carol = await network.connect(CAROL, node=0)
    alice.send(ALICE, BOB, "before")
    await arrive(bob, "before")
    await alice.accepted(1)
    await bob.close()
    bob = await network.connect(BOB, node=2)
    # Bob's mailbox has been read when this arrives.
    carol.send(CAROL, BOB, "other")
    await arrive(bob, "other")
    await store(mute, alice, "stored")
    for id in ("later", "last"):
        alice.send(ALICE, BOB, id)
    await arrive(bob, "stored", "later", "last")


@pytest.mark.parametrize("node", [1, 2], ids=["to the recipient's node", "to another node"])
async def test_group_messages_do_not_overtake_unannounced_envelopes_of_a_former_node(
    network: Network, monkeypatch: pytest.MonkeyPatch, no_polls: None, node: int
) -> None:
    mute = Mute(monkeypatch)
    await network.start()
    await network.register(ALICE, BOB)
    group = await make(network, ALICE, BOB)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    await changes(alice, 2)
    await changes(bob, 1)
    mute.is_on = True
    alice.send(ALICE, group, "stored", kind=device.GROUP, epoch=2)
    await alice.accepted(1)
    mute.is_on = False
    await alice.close()
    alice = await network.connect(ALICE, node=node)
    alice.send(ALICE, group, "later", kind=device.GROUP, epoch=2)
    await arrive(bob, "stored", "later")


async def test_an_envelope_without_a_response_precedes_later_ones_sent_to_another_node(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver, came = Exchange._deliver, asyncio.Event()

    def swallow(exchange: Exchange, source: str, frame: device.Send, *, read_first: bool) -> None:
        if frame.id == "0" and not came.is_set():
            came.set()
        else:
            deliver(exchange, source, frame, read_first=read_first)

    monkeypatch.setattr(Exchange, "_deliver", swallow)
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB)
    alice, former = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    alice.send(ALICE, BOB, "0")
    async with asyncio.timeout(TIMEOUT):
        await came.wait()
        bob = await network.connect(BOB, node=2)
        await former.next(device.Closing)
        alice.send(ALICE, BOB, "1")
        await arrive(bob, "0", "1")
        await alice.accepted(2)


async def test_an_envelope_without_a_response_precedes_later_stored_ones(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver, came = Exchange._deliver, asyncio.Event()
    mute = Mute(monkeypatch)

    def swallow(exchange: Exchange, source: str, frame: device.Send, *, read_first: bool) -> None:
        if frame.id == "0":
            came.set()
        else:
            deliver(exchange, source, frame, read_first=read_first)

    monkeypatch.setattr(Exchange, "_deliver", swallow)
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    alice.send(ALICE, BOB, "0")
    async with asyncio.timeout(TIMEOUT):
        await came.wait()
        # Node 0 now stores envelopes instead of sending them to the recipient's node, which still has the first one.
        mute.is_on = True
        alice.send(ALICE, BOB, "1")
        await alice.accepted(2)
        mute.is_on = False
        await arrive(bob, "0", "1")


async def test_envelopes_stored_while_a_node_was_away_precede_later_ones(
    network: Network, redis: RedisServer, monkeypatch: pytest.MonkeyPatch, no_polls: None
) -> None:
    read_all, gate = MailboxPolls.read_all, asyncio.Event()

    async def late(polls: MailboxPolls) -> None:
        await gate.wait()
        await read_all(polls)

    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    # Without announcements to all, as if they had been made before the nodes are back. Mailboxes are polled late.
    monkeypatch.setattr(RelocationCheck, "request_read_all", lambda relocation_check: None)
    monkeypatch.setattr(MailboxPolls, "read_all", late)
    redis.kill9()
    try:
        alice.send(ALICE, BOB, "stored")
        await alice.accepted(1)
    finally:
        redis.start()
    async with asyncio.timeout(TIMEOUT):
        with redis.client() as client:
            while not client.exists(f"{network.cluster.prefix}:at:{BOB}"):  # noqa: ASYNC110 (only Redis can say)
                await asyncio.sleep(0.01)
        ready = f"http://127.0.0.1:{network.nodes[0].addresses.http[1]}/health/ready"
        while (await network.http.get(ready)).status != 200:
            pass
        alice.send(ALICE, BOB, "later")
        asyncio.get_running_loop().call_later(1.0, gate.set)
        await arrive(bob, "stored", "later")


class PlayedMailboxes:
    """Router and store of a node: ALICE's mailbox is being read, and those of `filled` hold envelopes."""

    def __init__(self, devices: Sequence[str], filled: set[str]) -> None:
        self.devices = devices
        self.filled = filled
        self.read: list[str] = []
        # Numbers in each query.
        self.queries: list[int] = []
        self.attempts = 0  # reads of all filled mailboxes

    def attached(self) -> Iterator[str]:
        return iter(self.devices)

    def is_draining(self, number: str) -> bool:
        return number == ALICE

    def read_mailbox(self, number: str) -> None:
        self.read.append(number)

    async def list_filled(self, recipients: Sequence[str]) -> set[str]:
        assert ALICE not in recipients
        self.queries.append(len(recipients))
        return self.filled & set(recipients)

    async def list_first_filled(self, limit: int) -> set[str]:
        self.attempts += 1
        return set(sorted(self.filled)[:limit])


async def test_a_poll_reads_mailboxes_that_are_filled_or_being_read() -> None:
    mailboxes = PlayedMailboxes([ALICE, BOB, CAROL, BOB], {CAROL})
    async with asyncio.timeout(TIMEOUT):
        await MailboxPolls(mailboxes, mailboxes).run_once()
    assert mailboxes.read == [ALICE, CAROL]
    assert mailboxes.queries == [2]


@pytest.mark.parametrize(("elsewhere", "queries"), [(4999, []), (5000, [999, 1000, 502])])
async def test_a_poll_for_many_devices_reads_all_filled_mailboxes_at_once_unless_they_are_many(
    elsewhere: int, queries: list[int]
) -> None:
    here = [f"1555{index:07}" for index in range(2500)]
    # Those of other nodes' devices are filled, too.
    mailboxes = PlayedMailboxes([ALICE, *here, CAROL], {CAROL, *(f"1444{index:07}" for index in range(elsewhere))})
    async with asyncio.timeout(TIMEOUT):
        await MailboxPolls(mailboxes, mailboxes).run_once()
    assert mailboxes.read == [ALICE, CAROL]
    assert mailboxes.queries == queries


@pytest.mark.parametrize(("filled", "slow"), [(5001, 1.0), (1, -1.0)])
async def test_a_read_of_all_filled_mailboxes_that_finds_many_or_is_slow_pauses(
    monkeypatch: pytest.MonkeyPatch, filled: int, slow: float
) -> None:
    mailboxes = PlayedMailboxes(
        [f"1555{index:07}" for index in range(1500)], {f"1444{index:07}" for index in range(filled)}
    )
    monkeypatch.setattr(mailbox_polls, "SPREAD_SECONDS", 0.0)
    monkeypatch.setattr(mailbox_polls, "MAX_LISTING_SECONDS", slow)
    for pause, attempts in ((60.0, 1), (0.0, 4)):
        monkeypatch.setattr(mailbox_polls, "LISTING_PAUSE", pause)
        polls = MailboxPolls(mailboxes, mailboxes)
        async with asyncio.timeout(TIMEOUT):
            for _ in range(3):
                await polls.run_once()
        assert mailboxes.attempts == attempts


def test_sequence_numbers_follow_the_redis_clock_with_minimal_correction() -> None:
    own = ManualClock(1000.0)
    clock = SharedClock(own)

    def beat(ahead: float, to: float, back: float) -> None:
        started = clock.start()
        own.advance(to)
        response = own.now() + ahead
        own.advance(back)
        clock.learn(started, response)

    # Latency in one direction is no reason to suspect a clock that agrees.
    beat(0.0, 1.4, 0.0)
    beat(0.0, 0.0, 1.4)
    assert clock.now() == own.now()
    beat(0.8, 0.001, 0.001)
    assert 0.798 < clock.now() - own.now() < 0.802
    beat(0.8, 1.4, 0.0)
    assert 0.798 < clock.now() - own.now() < 0.802
    beat(-3.0, 0.001, 0.001)
    assert -3.002 < clock.now() - own.now() < -2.998
