"""Unreadable claims in Redis: the number can log in and is found, and so are the other numbers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest

from harness.redis_server import RedisServer
from network.settings import Limits
from tests.conftest import DatabaseFactory
from tests.network.support import Client, Network
from tidings.wire import device

ALICE, BOB, CAROL = "15550100001", "15550100002", "15550100003"

UNREADABLE = [
    (b"0", b"garbage"),
    (b"0", b""),
    (b"0", b"0 1 0 \xff\xfe other.2"),
    (b"0", b"0 0 0 1 other.2"),
    (b"0", b"9" * 5000 + b" 1 0 1 other.2"),
    (b"first", b"0 1 0 1 other.2"),
    (b"7", b"0 1 0 1 other.2"),
]


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


@pytest.fixture
async def network(database_factory: DatabaseFactory, redis: RedisServer) -> AsyncIterator[Network]:
    database = await database_factory("network")
    network = Network(database.settings, "tcp", nodes=2, redis=redis.url)
    yield network
    await network.remove()


async def reach(alice: Client, sender: str, bob: Client, number: str, id: str) -> None:
    """Deliver an envelope of Alice's to Bob without the mailbox. He acknowledges it."""
    alice.send(sender, number, id)
    (delivery,) = await bob.deliveries(1)
    assert delivery.id == id
    bob.ack(delivery)
    await alice.accepted(1)


@pytest.mark.parametrize(("partition", "value"), UNREADABLE)
async def test_a_login_overwrites_an_unreadable_claim(
    network: Network, redis: RedisServer, caplog: pytest.LogCaptureFixture, partition: bytes, value: bytes
) -> None:
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB)
    key = f"{network.cluster.prefix}:at:{BOB}"
    with redis.client() as server:
        server.hset(key, partition, value)
        with caplog.at_level(logging.WARNING):
            alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
        assert value not in server.hvals(key)
    lines = [record for record in caplog.records if record.getMessage() == "claim.unreadable"]
    assert [(line.__dict__["number"], line.__dict__["outcome"]) for line in lines] == [(BOB, "overwritten")]
    await reach(alice, ALICE, bob, BOB, "claimed")


async def test_an_unreadable_claim_counts_as_absent_in_lookups(network: Network, redis: RedisServer) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    alice, carol = await network.connect(ALICE, node=0), await network.connect(CAROL, node=1)
    with redis.client() as server:
        server.hset(f"{network.cluster.prefix}:at:{BOB}", b"0", b"garbage")
    alice.send(ALICE, BOB, "waits")
    alice.send(ALICE, CAROL, "passes")
    carol.ack(*await carol.deliveries(1))
    await alice.accepted(2)
    bob = await network.connect(BOB, node=1)
    (delivery,) = await bob.deliveries(1)
    assert delivery.id == "waits"


@pytest.mark.parametrize("kind", ["text", "list"])
async def test_a_claim_key_of_another_type_counts_as_absent(network: Network, redis: RedisServer, kind: str) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    alice = await network.connect(ALICE, node=0)
    key = f"{network.cluster.prefix}:at:{BOB}"
    with redis.client() as server:
        server.set(key, "garbage") if kind == "text" else server.rpush(key, "garbage")
        alice.send(ALICE, BOB, "waits")
        await alice.accepted(1)
        bob = await network.connect(BOB, node=1)
        bob.ack(*await bob.deliveries(1))
        assert server.type(key) == b"hash"
    await reach(alice, ALICE, bob, BOB, "claimed")


async def test_an_unreadable_node_entry_blocks_no_login(network: Network, redis: RedisServer) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    with redis.client() as server:
        server.zadd(f"{network.cluster.prefix}:nodes", {b"\xff\xfe": 2.0**52})
        server.hset(f"{network.cluster.prefix}:loads", b"\xff\xfe", b"{}")
        await network.nodes[0].stop()
        await network.start_node(network.nodes[0])
        assert not server.hexists(f"{network.cluster.prefix}:loads", b"\xff\xfe")
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    await reach(alice, ALICE, bob, BOB, "m")
    assert isinstance(await bob.request(lambda n: device.Login(n, BOB, network.tokens[BOB])), device.Ok)
