"""Partitions over the wire: the network with several programs that together are one device."""

from __future__ import annotations

import functools

import pytest

from tests.manual_clock import ManualClock
from tests.network.support import REGISTRATION_KEY, Client, Network, ids, registration
from tidings.e2ee.xeddsa import IdentityKeyPair
from tidings.wire import addresses, device
from tidings.wire.device import Partition

BUSINESS = "15550000000"
# One peer in each half of the partitions, that is, one in each quarter of a layout of four.
PEERS = [
    next(f"1555013{n:04}" for n in range(100) if addresses.shard_of(f"1555013{n:04}", 4) == partition)
    for partition in range(4)
]


@pytest.fixture(params=[("tcp", "mariadb"), ("json", "sqlite")], ids=lambda pair: "-".join(pair))
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    transport, database = request.param
    return transport, database


async def try_log_in(client: Client, network: Network, part: Partition, *, epoch: int = 0) -> object:
    """Log in this partition of the business and return the response."""
    return await client.request(
        functools.partial(
            device.Login,
            number=BUSINESS,
            token=network.tokens[BUSINESS],
            epoch=epoch,
            partition=part.partition,
            partitions=part.partitions,
            layout=part.layout,
        )
    )


async def log_in(network: Network, part: Partition, *, epoch: int = 0) -> Client:
    client = await network.connect()
    assert isinstance(await try_log_in(client, network, part, epoch=epoch), device.Ok)
    return client


async def test_envelopes_reach_their_senders_partition_and_group_traffic_the_first(
    network: Network,
) -> None:
    await network.start()
    await network.register(BUSINESS, *PEERS)
    peers = await network.connect(*PEERS)
    parts = [await log_in(network, Partition(n, 4, 1)) for n in range(4)]
    for peer in PEERS:
        peers.send(peer, BUSINESS, f"message-{peer}")
        peers.send(peer, BUSINESS, f"read-{peer}", kind=device.READ, body=b"", refs=["m1"])
        peers.send(peer, BUSINESS, f"retry-{peer}", kind=device.RETRY, body=b"", refs=["m1"], group=f"{BUSINESS}-1")
    await peers_accepted(peers, parts, PEERS)
    for peer in PEERS:
        peers.send(peer, BUSINESS, f"of-group-{peer}", kind=device.READ, body=b"", refs=["g1"], group=f"{BUSINESS}-1")
    assert sorted(ids(await parts[0].deliveries(4))) == sorted(f"of-group-{peer}" for peer in PEERS)
    for client in parts:
        await client.nothing_came()


async def peers_accepted(peers: Client, parts: list[Client], numbers: list[str]) -> None:
    for client, peer in zip(parts, numbers, strict=True):
        found = await client.deliveries(3)
        assert ids(found) == [f"message-{peer}", f"read-{peer}", f"retry-{peer}"]
        client.ack(*found)
    await peers.accepted(3 * len(numbers))


def sent_by(peer: int) -> list[str]:
    """Return the ids that one of four peers has sent, when they alternate in sending 20 messages."""
    return [f"m{n}" for n in range(peer, 20, 4)]


async def test_stored_envelopes_reach_their_partition_in_a_new_layout_after_a_restart(
    network: Network,
) -> None:
    await network.start()
    await network.register(BUSINESS, *PEERS)
    peers = await network.connect(*PEERS)
    first = await log_in(network, Partition(1, 2, 1))
    for n in range(20):
        peers.send(PEERS[n % 4], BUSINESS, f"m{n}")
    # Every second message, from the two peers of this partition. It does not acknowledge them.
    assert ids(await first.deliveries(10)) == [f"m{n}" for n in range(1, 20, 2)]
    await network.stop()
    await network.start()
    for part in (Partition(3, 4, 2), Partition(0, 4, 2)):
        client = await log_in(network, part)
        assert ids(await client.deliveries(5)) == sent_by(part.partition)
    # The whole is one partition of one. Several nodes keep the order per sender, one node keeps the order of all
    # messages.
    whole = await log_in(network, Partition(0, 1, 3))
    found = ids(await whole.deliveries(20))
    for n in range(4):
        assert [id for id in found if id in sent_by(n)] == sent_by(n)
    assert found == [f"m{n}" for n in range(20)] or len(network.nodes) > 1


async def test_a_higher_layout_expels_the_lower_and_a_lower_one_is_refused(network: Network) -> None:
    await network.start()
    await network.register(BUSINESS)
    former = [await log_in(network, Partition(n, 2, 1)) for n in range(2)]
    newer = await log_in(network, Partition(3, 4, 2))
    for client in former:
        closing = await client.next(device.Closing)
        assert (closing.reason, closing.number) == (device.REPLACED, BUSINESS)
    late = await network.connect()
    for part in (Partition(0, 2, 1), Partition(), Partition(3, 4, 1)):
        failed = await try_log_in(late, network, part, epoch=99)
        assert isinstance(failed, device.Failed)
        assert failed.reason == device.STALE_EPOCH
    await newer.nothing_came()


@pytest.mark.parametrize("part", [(2, 2, 0), (-1, 2, 0), (0, 3, 0), (0, 64, 0), (0, 0, 0), (0, 1, -1)])
async def test_an_invalid_partition_is_refused(network: Network, part: tuple[int, int, int]) -> None:
    await network.start()
    await network.register(BUSINESS)
    client = await network.connect()
    failed = await try_log_in(client, network, Partition(*part))
    assert isinstance(failed, device.Failed)
    assert failed.reason == device.INVALID


async def test_one_connection_carries_one_partition_of_a_device(network: Network) -> None:
    await network.start()
    await network.register(BUSINESS, *PEERS)
    client = await log_in(network, Partition(0, 4, 1))
    failed = await try_log_in(client, network, Partition(1, 4, 1))
    assert isinstance(failed, device.Failed)
    assert failed.reason == device.INVALID
    # In another layout the same partition stays attached.
    assert isinstance(await try_log_in(client, network, Partition(0, 4, 2)), device.Ok)
    # A connection that has logged out may log in as another partition.
    assert isinstance(await client.request(functools.partial(device.Logout, number=BUSINESS)), device.Ok)
    assert isinstance(await try_log_in(client, network, Partition(1, 4, 2)), device.Ok)
    peers = await network.connect(PEERS[1])
    peers.send(PEERS[1], BUSINESS, "m1")
    assert ids(await client.deliveries(1)) == ["m1"]


async def test_the_first_partition_is_notified_of_low_prekeys_and_each_may_check(network: Network) -> None:
    await network.start()
    await network.register(BUSINESS, prekeys=0)
    second = await log_in(network, Partition(1, 2, 1))
    await second.nothing_came()
    first = await log_in(network, Partition(0, 2, 1))
    assert (await first.next(device.PreKeysLow)).remaining == 0
    for client in (first, second):
        client.link.send(device.Check(50, BUSINESS, [BUSINESS]))
    for client in (first, second):
        assert (await client.next(device.Checked)).registered == [BUSINESS]


async def test_network_notices_reach_the_partition_of_the_number_they_concern(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, expiry_interval=0.05)
    await network.register(BUSINESS, *PEERS)
    parts = [await log_in(network, Partition(n, 4, 1)) for n in range(4)]
    # Each partition sends to its own peers, so it is the one that waits for the outcome.
    for client, peer in zip(parts, PEERS, strict=True):
        client.send(BUSINESS, peer, f"to-{peer}", ttl=10)
        await client.accepted(1)
    clock.advance(11)
    for client, peer in zip(parts, PEERS, strict=True):
        (notice,) = await client.deliveries(1)
        assert (notice.kind, notice.sender, notice.refs) == (device.EXPIRED, peer, [f"to-{peer}"])
        client.ack(notice)
    # A partition that has fetched a bundle is notified of a new identity key.
    response = await parts[0].request(lambda n: device.Fetch(n, BUSINESS, [PEERS[2]]))
    assert isinstance(response, device.Bundles)
    changed = registration(PEERS[2], identity=IdentityKeyPair.generate())
    await network.request("POST", "/v1/registrations", changed, token=REGISTRATION_KEY)
    (notice,) = await parts[2].deliveries(1)
    assert (notice.kind, notice.sender) == (device.IDENTITY, PEERS[2])
    for client in (parts[0], parts[1], parts[3]):
        await client.nothing_came()


async def test_expired_envelopes_are_delivered_to_no_partition(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, expiry_interval=3600)
    await network.register(BUSINESS, *PEERS)
    peers = await network.connect(*PEERS)
    peers.send(PEERS[1], BUSINESS, "short", ttl=10)
    peers.send(PEERS[1], BUSINESS, "long")
    await peers.accepted(2)
    clock.advance(10)
    part = await log_in(network, Partition(1, 4, 1))
    assert ids(await part.deliveries(1)) == ["long"]
