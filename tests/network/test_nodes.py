"""Two nodes of one network over a Redis: a device is attached to one of them, and the other knows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import psutil
import pymysql
import pytest
import sqlalchemy as sa

from harness import metrics, polling
from harness.redis_server import RedisServer
from network.cluster.links import NodeLinks, NodeUnavailable
from network.cluster.node import ClusterNode
from network.cluster.presence import Presence
from network.routing.shared_router import SharedRouter
from network.settings import Limits
from tests.conftest import DatabaseFactory
from tests.network.group_support import changes, make
from tests.network.support import REGISTRATION_KEY, TIMEOUT, Client, Network, registration
from tidings.secrets.api_key import ApiKey
from tidings.storage.database import Database
from tidings.storage.network import group_messages
from tidings.storage.network.group_messages import StoredGroupMessage
from tidings.wire import device

ALICE, BOB, CAROL = "15550100001", "15550100002", "15550100003"
KEY = ApiKey("a key of twenty chars")


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


@pytest.fixture
async def network(database_factory: DatabaseFactory, redis: RedisServer) -> AsyncIterator[Network]:
    database = await database_factory("network")
    network = Network(database.settings, "tcp", nodes=2, redis=redis.url)
    yield network
    await network.remove()


async def health(network: Network, path: str = "/health") -> tuple[int, dict[str, object]]:
    async with network.http.get(path) as response:
        return response.status, await response.json()


async def redis_is(network: Network, state: str) -> None:
    """Wait until the node reports this state of Redis."""
    async with asyncio.timeout(TIMEOUT):
        while (await health(network))[1]["redis"] != state:
            pass


def group_send(client: Client, sender: str, group: str, id: str, epoch: int) -> int:
    return client.send(sender, group, id, kind=device.GROUP, epoch=epoch)


async def talk(alice: Client, bob: Client, *ids: str) -> None:
    """Deliver Alice's envelopes to Bob in order. He acknowledges them."""
    sent = [alice.send(ALICE, BOB, id) for id in ids]
    deliveries = await bob.deliveries(len(ids))
    assert [delivery.id for delivery in deliveries] == list(ids)
    bob.ack(*deliveries)
    assert await alice.accepted(len(ids)) == sent


async def test_envelopes_pass_between_nodes_in_order_without_being_stored(network: Network) -> None:
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    stored = metrics.value("tidings_network_stored_total")
    await talk(alice, bob, *(f"m{i}" for i in range(300)))
    bob.send(BOB, ALICE, "back")
    (back,) = await alice.deliveries(1)
    alice.ack(back)
    await bob.accepted(1)
    assert metrics.value("tidings_network_stored_total") == stored
    # A repeated envelope is recognised on the node that delivered it.
    alice.send(ALICE, BOB, "m0")
    await alice.accepted(1)
    await bob.nothing_came()


async def test_a_transient_envelope_reaches_a_device_on_another_node_and_is_dropped_without_one(
    network: Network,
) -> None:
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB, CAROL)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    await talk(alice, bob, "first")
    for to in (BOB, CAROL):
        n = alice.send(ALICE, to, f"typing to {to}".replace(" ", "-"), kind=device.TRANSIENT)
        assert await alice.accepted(1) == [n]
    (delivery,) = await bob.deliveries(1)
    assert (delivery.id, delivery.kind) == (f"typing-to-{BOB}", device.TRANSIENT)
    carol = await network.connect(CAROL, node=1)
    await carol.nothing_came()
    await talk(alice, bob, "after")


async def test_out_of_range_numbers_do_not_block_envelopes_between_nodes(network: Network) -> None:
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE, node=0, transport="json"), await network.connect(BOB, node=1)
    refused = alice.send(ALICE, BOB, "epoch", epoch=2**70)
    response = await alice.next(device.Refused)
    assert (response.n, response.reason) == (refused, device.INVALID)
    sent = [alice.send(ALICE, BOB, "long", ttl=2**70), alice.send(ALICE, BOB, "short", ttl=60)]
    deliveries = await bob.deliveries(2)
    assert [delivery.id for delivery in deliveries] == ["long", "short"]
    bob.ack(*deliveries)
    assert await alice.accepted(2) == sent


async def test_a_login_at_another_node_takes_over_envelopes_in_flight(network: Network) -> None:
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB)
    alice, first = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    alice.send(ALICE, BOB, "in-flight")
    await first.deliveries(1)
    second = await network.connect(BOB, node=0)
    closing = await first.next(device.Closing)
    assert (closing.reason, closing.number) == (device.REPLACED, BOB)
    (delivery,) = await second.deliveries(1)
    assert delivery.id == "in-flight"
    second.ack(delivery)
    await alice.accepted(1)
    await talk(alice, second, "here")


async def test_an_older_epoch_is_refused_on_every_node(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    first, second = await network.connect(node=0), await network.connect(node=1)
    token = network.tokens[ALICE]
    assert isinstance(await first.request(lambda n: device.Login(n, ALICE, token, epoch=2)), device.Ok)
    refused = await second.request(lambda n: device.Login(n, ALICE, token, epoch=1))
    assert isinstance(refused, device.Failed)
    assert refused.reason == device.STALE_EPOCH
    await first.nothing_came()
    assert isinstance(await second.request(lambda n: device.Login(n, ALICE, token, epoch=2)), device.Ok)
    assert (await first.next(device.Closing)).reason == device.REPLACED


async def test_a_number_registered_during_its_login_is_refused_with_its_former_token(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    await network.start()
    await network.register(ALICE)
    former, claim = network.tokens[ALICE], Presence.claim

    async def slow(presence: Presence, number: str, login_epoch: int, part: device.Partition) -> bool:
        monkeypatch.undo()
        granted = await claim(presence, number, login_epoch, part)
        await network.register(ALICE)
        return granted

    monkeypatch.setattr(Presence, "claim", slow)
    client = await network.connect(node=0)
    failed = await client.request(lambda n: device.Login(n, ALICE, former))
    assert isinstance(failed, device.Failed)
    assert failed.reason == device.UNAUTHORIZED
    await client.login(ALICE, network.tokens[ALICE])


async def test_partitions_of_one_device_may_be_attached_to_different_nodes(network: Network) -> None:
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB, CAROL)
    parts = [await network.connect(node=0), await network.connect(node=1)]
    for partition, client in enumerate(parts):
        response = await client.request(
            lambda n, partition=partition: device.Login(
                n, BOB, network.tokens[BOB], partition=partition, partitions=2, layout=1
            )
        )
        assert isinstance(response, device.Ok)
    for node in (0, 1):
        for sender in (ALICE, CAROL):
            client = await network.connect(sender, node=node)
            client.send(sender, BOB, f"{sender}-{node}")
            part = parts[device.hash_slot_of(sender, device.MESSAGE, "") % 2]
            (delivery,) = await part.deliveries(1)
            assert delivery.id == f"{sender}-{node}"
            part.ack(delivery)
            await client.accepted(1)
            await client.close()
    # A higher layout ends the attachments of the lower one on every node.
    whole = await network.connect(node=0)
    assert isinstance(await whole.request(lambda n: device.Login(n, BOB, network.tokens[BOB], layout=2)), device.Ok)
    for client in parts:
        assert (await client.next(device.Closing)).reason == device.REPLACED


async def test_a_block_applies_on_all_nodes_once_it_is_confirmed(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=0)
    await talk(alice, bob, "before")
    # The HTTP call goes to the other node.
    await network.request("PUT", f"/v1/blocks/{BOB}/{ALICE}", token=network.tokens[BOB])
    alice.send(ALICE, BOB, "after")
    assert (await alice.next(device.Refused)).reason == device.BLOCKED


async def test_a_new_registration_disconnects_the_number_on_every_node(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    alice = await network.connect(ALICE, node=0)
    await network.register(ALICE)
    assert (await alice.next(device.Closing)).reason == device.REPLACED


async def test_a_registration_that_is_announced_late_disconnects_the_number(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut(links: NodeLinks, node: str, packet: bytes) -> None:
        raise NodeUnavailable("played")

    await network.start()
    await network.register(ALICE, BOB)
    former, other = await network.connect(ALICE, node=0), await network.connect(BOB, node=0)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(NodeLinks, "post", cut)
        await network.register(ALICE)
    assert (await former.next(device.Closing)).reason == device.REPLACED
    await other.nothing_came()


async def test_a_registration_whose_node_ends_before_its_announcement_disconnects_the_number(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object, **__: object) -> None:
        raise RuntimeError("played")

    await network.start()
    await network.register(ALICE, BOB)
    former, other = await network.connect(ALICE, node=0), await network.connect(BOB, node=0)
    body = registration(ALICE) | {"token": "t" * 43}
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(ClusterNode, "changed", die)
        assert (await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY))[0] == 500
    await network.nodes[1].stop()
    assert (await former.next(device.Closing)).reason == device.REPLACED
    await other.nothing_came()
    network.tokens[ALICE] = "t" * 43
    await network.connect(ALICE, node=0)


async def test_a_registration_of_unknown_outcome_disconnects_the_number_on_every_node(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    persist = Database.persist

    async def lossy(database: Database, work: Any, **options: Any) -> Any:
        result = await persist(database, work, **options)
        if options.get("retry_seconds") == 20:
            raise sa.exc.OperationalError("COMMIT", {}, pymysql.err.OperationalError(2013, "Lost connection"))
        return result

    await network.start()
    await network.register(ALICE)
    former = await network.connect(ALICE, node=0)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Database, "persist", lossy)
        body = registration(ALICE)
        assert (await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY))[0] == 503
    assert (await former.next(device.Closing)).reason == device.REPLACED


async def test_a_checked_missing_number_is_announced_when_it_registers_at_another_node(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    alice = await network.connect(ALICE, node=0)
    checked = await alice.request(lambda n: device.Check(n, ALICE, [BOB]))
    assert checked.registered == []
    await network.register(BOB)
    (notice,) = await alice.deliveries(1)
    assert (notice.kind, notice.sender) == (device.IDENTITY, BOB)


async def test_one_time_keys_are_handed_out_once_across_all_nodes(network: Network) -> None:
    await network.start()
    await network.register(ALICE, CAROL)
    await network.register(BOB, prekeys=6)
    clients = [await network.connect(ALICE, node=0), await network.connect(CAROL, node=1)]

    async def fetch(client: Client, number: str) -> list[int | None]:
        responses = [await client.request(lambda n: device.Fetch(n, number, [BOB])) for _ in range(4)]
        return [bundle.prekey_id for response in responses for bundle in response.bundles]

    both = await asyncio.gather(fetch(clients[0], ALICE), fetch(clients[1], CAROL))
    given = [key for keys in both for key in keys if key is not None]
    assert sorted(given) == [1, 2, 3, 4, 5, 6]


async def test_group_copies_reach_members_on_other_nodes(network: Network) -> None:
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB, CAROL)
    group = await make(network, ALICE, BOB, CAROL)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    await changes(alice, 3)
    await changes(bob, 2)
    for i in range(10):
        group_send(alice, ALICE, group, f"m{i}", 3)
    await alice.accepted(10)
    deliveries = await bob.deliveries(10)
    assert [delivery.id for delivery in deliveries] == [f"m{i}" for i in range(10)]
    bob.ack(*deliveries)
    await bob.nothing_came()


async def test_messages_left_in_memory_are_moved_to_mailboxes_by_a_starting_node(
    network: Network,
) -> None:
    await network.start()
    second = network.nodes[1]
    await network.register(ALICE, BOB)
    bob = await network.connect(BOB, node=0)
    await talk(await network.connect(ALICE, node=0), bob, "newer")
    await second.stop()
    database = Database(network.database, "network")
    async with database.transaction() as connection:
        now = int(time.time() * 1000)
        left = StoredGroupMessage(
            7, ALICE, "left", now, now + 60_000, b"sealed", [], group=f"{ALICE}-5", copies={BOB: 7}
        )
        await group_messages.add(connection, [left])
    await database.close()
    await network.start_node(second)
    (delivery,) = await bob.deliveries(1)
    assert (delivery.id, delivery.group) == ("left", f"{ALICE}-5")
    bob.ack(delivery)
    await bob.nothing_came()


async def test_operator_announcements_reach_one_or_all_devices_on_all_nodes(network: Network) -> None:
    await network.start(operator_key=KEY)
    await network.register(ALICE, BOB, CAROL)
    clients = [await network.connect(ALICE, node=0), await network.connect(BOB, node=1)]
    headers = {"Authorization": f"Apikey {KEY}"}
    async with network.http.post("/v1/announcements", json={"text": "To all"}, headers=headers) as response:
        assert (response.status, await response.json()) == (202, {"devices": 2, "nodes": 2})
    for client, number in zip(clients, (ALICE, BOB), strict=True):
        (delivery,) = await client.deliveries(1)
        assert (delivery.kind, delivery.sender, delivery.body) == (device.ANNOUNCEMENT, number, b"To all")
        client.ack(delivery)
    for number in (ALICE, CAROL):
        url = f"/v1/announcements/{number}"
        async with network.http.post(url, json={"text": f"To {number}"}, headers=headers) as response:
            assert response.status == 202
    # One was connected before, one connects later.
    for client, number in ((clients[0], ALICE), (await network.connect(CAROL), CAROL)):
        (delivery,) = await client.deliveries(1)
        assert delivery.body == f"To {number}".encode()
    status, _ = await network.request("POST", "/v1/announcements", {"text": "To all"}, token="a wrong key")
    assert status == 401


async def test_without_redis_nodes_serve_their_devices_store_the_rest_and_recover(
    network: Network, redis: RedisServer
) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    carol = await network.connect(CAROL, node=0)
    await talk(alice, bob, "before")
    redis.kill9()
    try:
        await redis_is(network, "away")
        assert (await health(network))[0] == 200
        assert (await health(network, "/health/ready"))[0] == 503
        alice.send(ALICE, CAROL, "local")
        carol.ack(*await carol.deliveries(1))
        await alice.accepted(1)
        alice.send(ALICE, BOB, "stored")
        await alice.accepted(1)
    finally:
        redis.start()
    # No device has to log in again.
    (delivery,) = await bob.deliveries(1)
    assert delivery.id == "stored"
    bob.ack(delivery)
    await redis_is(network, "ok")
    await talk(alice, bob, "after")
    assert (await health(network, "/health/ready"))[0] == 200


async def test_claims_are_renewed_and_those_that_redis_lost_are_repeated(
    network: Network, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    require_read = SharedRouter.require_read

    def record(router: SharedRouter, number: str = "") -> None:
        looked.append(number)
        require_read(router, number)

    monkeypatch.setattr(SharedRouter, "require_read", record)
    await network.start()
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    await talk(alice, bob, "before")
    kept, lost = (f"{network.cluster.prefix}:at:{number}" for number in (ALICE, BOB))
    looked.clear()
    with redis.client() as server:
        server.delete(lost)
        server.expire(kept, 100)
        monkeypatch.setattr("network.cluster.node.RENEWAL_TICKS", 1)
        await polling.until(lambda: server.exists(lost) and server.ttl(kept) > 100)
        assert server.ttl(lost) > 3500
    # Only the mailbox that other nodes may have filled without an announcement is read.
    assert looked == [BOB]
    await talk(alice, bob, "after")


async def test_nodes_that_cannot_reach_each_other_store_envelopes_and_recover(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE, node=0), await network.connect(BOB, node=1)
    await talk(alice, bob, "before")

    async def cut(links: NodeLinks, node: str, packet: bytes) -> None:
        raise NodeUnavailable("played")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(NodeLinks, "post", cut)
        alice.send(ALICE, BOB, "stored")
        await alice.accepted(1)
    (delivery,) = await bob.deliveries(1)
    assert delivery.id == "stored"
    bob.ack(delivery)
    await talk(alice, bob, "after")


def listening_ports() -> set[int]:
    """Return the TCP ports at which this process accepts connections."""
    return {each.laddr.port for each in psutil.Process().net_connections("tcp") if each.status == psutil.CONN_LISTEN}


async def test_a_stopping_node_disconnects_its_devices_gradually(network: Network) -> None:
    await network.start(drain=0.5)
    assert {network.nodes[0].addresses.http[1], network.nodes[0].addresses.tcp[1]} <= listening_ports()
    await network.register(*(numbers := [f"1555010{i:04}" for i in range(5)]))
    clients = [await network.connect(number, node=0) for number in numbers]
    stopping = asyncio.create_task(network.nodes[0].stop())
    loop, moments = asyncio.get_running_loop(), []
    for closing in asyncio.as_completed([client.next(device.Closing) for client in clients]):
        assert (await closing).reason == device.SHUTDOWN
        moments.append(loop.time())
        # Clients that connect while the node stops are refused, so that they go to another node instead of waiting. The
        # test does not connect: another process may have the port by now.
        assert {network.nodes[0].addresses.http[1], network.nodes[0].addresses.tcp[1]} & listening_ports() == set()
    await stopping
    assert moments[-1] - moments[0] > 0.2
    # The other node has them now, and nothing is forwarded to the stopped one.
    alice, bob = await network.connect(numbers[0], node=1), await network.connect(numbers[1], node=1)
    alice.send(numbers[0], numbers[1], "after")
    bob.ack(*await bob.deliveries(1))
    await alice.accepted(1)


async def test_a_registration_without_redis_ends_the_former_login_on_the_other_node(
    network: Network, redis: RedisServer
) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    former = await network.connect(ALICE, node=0)
    redis.kill9()
    try:
        await redis_is(network, "away")
        # At node 1: the token of the former device is void from now on.
        await network.register(ALICE)
        assert (await former.next(device.Closing)).reason == device.REPLACED
    finally:
        redis.start()
    await redis_is(network, "ok")
