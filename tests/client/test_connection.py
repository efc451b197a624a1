"""Device client against a real network: it logs in, sends, receives, and reconnects."""

from __future__ import annotations

import pytest

from tests.client.support import Recorder
from tests.network.support import Network
from tidings import e2ee
from tidings.client.errors import NetworkRefusal, NetworkUnreached
from tidings.client.transports import Dial, over_http, tcp
from tidings.wire import addresses, device

ANN, BEN, CAT = "15550100001", "15550100002", "15550100003"


def dial_of(network: Network, transport: str = "tcp") -> Dial:
    if transport == "tcp":
        return tcp(*network.addresses.tcp)
    host, port = network.addresses.http
    return over_http(f"http://{host}:{port}")


def client_of(network: Network, *numbers: str, transport: str = "tcp", epoch: int = 0) -> Recorder:
    """Return a client that logs in these registered numbers."""
    client = Recorder(dial_of(network, transport))
    for number in numbers:
        client.connection.log_in(number, network.tokens[number], epoch=epoch)
    return client


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
async def test_devices_on_one_connection_exchange_messages(network: Network, transport: str) -> None:
    await network.register(ANN, BEN)
    async with client_of(network, ANN, BEN, transport=transport).running() as client:
        client.send(ANN, BEN, "m1", refs=["m0"], trace="t", body=b"one")
        client.send(BEN, ANN, "m2")
        await client.until(lambda: len(client.deliveries) == 2)
        first = next(delivery for delivery in client.deliveries if delivery.to == BEN)
        assert (first.sender, first.id, first.body, first.refs, first.trace) == (ANN, "m1", b"one", ["m0"], "t")
        assert (first.message_id, first.is_repetition) == ("m0", True)
        client.connection.acknowledge(client.deliveries)
        await client.until_event("accepted", "m1")
        await client.until_event("accepted", "m2")
    assert client.events[-1] == ("lost", "shutdown")
    assert not client.connection.is_open


async def test_only_unacknowledged_deliveries_are_repeated(network: Network) -> None:
    await network.register(ANN, BEN)
    async with client_of(network, ANN, BEN).running() as client:
        for number in range(3):
            client.send(ANN, BEN, f"m{number}")
        await client.until(lambda: len(client.deliveries) == 3)
        client.connection.acknowledge(client.deliveries[:1])
        await client.until_event("accepted", "m0")
        earlier = client.deliveries[1:]
        client.connection.drop("test")
        await client.until(lambda: len(client.deliveries) == 5)
        assert [delivery.id for delivery in client.deliveries[3:]] == ["m1", "m2"]
        # Delivery numbers of an earlier connection have another meaning on this one.
        client.connection.acknowledge(earlier)
        client.connection.drop("test")
        await client.until(lambda: len(client.deliveries) == 7)
        client.connection.acknowledge(client.deliveries)
        client.send(ANN, BEN, "last")
        await client.until(lambda: len(client.deliveries) == 8)
    assert client.count("lost") == 3


async def test_a_wrong_token_detaches_only_its_own_device(network: Network) -> None:
    await network.register(ANN, BEN)
    client = client_of(network, ANN)
    client.connection.log_in(BEN, "wrong")
    async with client.running():
        assert ("detached", BEN, device.UNAUTHORIZED) in client.events
        assert client.connection.is_attached(ANN)
        assert not client.connection.is_attached(BEN)
        client.connection.drop("test")
        await client.until(lambda: client.count("attached") == 2)
        client.connection.log_in(BEN, network.tokens[BEN])
        await client.until_event("attached", BEN)
    # It did not log in again before it had another token.
    assert client.count("detached") == 1


async def test_a_device_replaced_by_another_login_is_notified_and_can_log_in_again(network: Network) -> None:
    await network.register(ANN, BEN)
    async with client_of(network, ANN, BEN).running() as first, client_of(network, ANN).running() as second:
        await first.until_event("detached", ANN, device.REPLACED)
        assert not first.connection.is_attached(ANN)
        # Envelopes of a device that is not attached are not sent.
        first.send(ANN, BEN, "dropped")
        first.connection.log_in(ANN, network.tokens[ANN])
        await second.until_event("detached", ANN, device.REPLACED)
        first.send(ANN, BEN, "m1")
        await first.until_event("delivered", BEN, "m1")
    assert [delivery.id for delivery in first.deliveries] == ["m1"]


async def test_a_device_that_logs_out_leaves_the_others_and_may_log_in_again(network: Network) -> None:
    await network.register(ANN, BEN)
    async with client_of(network, ANN, BEN).running() as client:
        client.send(BEN, ANN, "m1")
        await client.until_event("delivered", ANN, "m1")
        client.connection.log_out(ANN)
        client.send(ANN, BEN, "dropped")
        await client.until_event("logged out", ANN)
        assert not client.connection.is_attached(ANN)
        # The network has stored the envelope that was not acknowledged.
        await client.until_event("accepted", "m1")
        client.send(BEN, BEN, "m2")
        await client.until_event("delivered", BEN, "m2")
        client.connection.log_in(ANN, network.tokens[ANN])
        await client.until(lambda: client.events.count(("delivered", ANN, "m1")) == 2)
        client.connection.log_out(ANN)
        client.connection.drop("test")
        await client.until(lambda: client.count("lost") == 1 and client.events.count(("attached", BEN)) == 2)
    assert client.events.count(("attached", ANN)) == 2
    assert "dropped" not in [delivery.id for delivery in client.deliveries]


async def test_a_lower_epoch_is_refused_as_stale(network: Network) -> None:
    await network.register(ANN)
    async with client_of(network, ANN, epoch=2).running(), client_of(network, ANN, epoch=1).running() as late:
        assert ("detached", ANN, device.STALE_EPOCH) in late.events


async def test_partitions_receive_their_deliveries_until_a_new_layout_detaches_them(
    network: Network,
) -> None:
    await network.register(ANN, BEN, CAT)
    parts = [Recorder(dial_of(network)) for _ in range(2)]
    for partition, part in enumerate(parts):
        part.connection.log_in(ANN, network.tokens[ANN], epoch=1, part=device.Partition(partition, 2, 1))
    async with parts[0].running(), parts[1].running(), client_of(network, BEN, CAT).running() as peers:
        for peer in (BEN, CAT):
            peers.send(peer, ANN, f"of-{peer}")
            own = parts[addresses.shard_of(peer, 2)]
            await own.until_event("delivered", ANN, f"of-{peer}")
            own.connection.acknowledge(own.deliveries)
        assert sum(len(part.deliveries) for part in parts) == 2
        newer = Recorder(dial_of(network))
        newer.connection.log_in(ANN, network.tokens[ANN], epoch=1, part=device.Partition(0, 1, 2))
        async with newer.running():
            for part in parts:
                await part.until_event("detached", ANN, device.REPLACED)
            parts[0].connection.drop("test")
            await parts[0].until_event("detached", ANN, device.STALE_EPOCH)


async def test_fetch_returns_bundles_for_registered_numbers_only(network: Network) -> None:
    await network.register(ANN, BEN, prekeys=2)
    async with client_of(network, ANN).running() as client:
        assert await client.connection.check(ANN, [BEN, CAT]) == {BEN}
        bundles = await client.connection.fetch(ANN, [BEN, CAT])
        assert list(bundles) == [BEN]
        session = e2ee.SessionRecord.initiate(e2ee.IdentityKeyPair.generate(), 1, bundles[BEN])
        assert session.encrypt(b"hello")[0] == e2ee.PREKEY
        with pytest.raises(NetworkUnreached):
            await client.connection.fetch(BEN, [ANN])


async def test_a_fetch_of_many_numbers_is_split_into_several_calls(network: Network) -> None:
    await network.register(ANN, BEN)
    unregistered = [str(15550200000 + number) for number in range(600)]
    async with client_of(network, ANN).running() as client:
        assert list(await client.connection.fetch(ANN, [*unregistered, BEN])) == [BEN]
        with pytest.raises(NetworkRefusal) as refusal:
            await client.connection.check(ANN, ["1"] * 10_001)
        assert refusal.value.reason == device.TOO_LARGE


async def test_a_device_is_notified_when_its_prekeys_run_low(network: Network) -> None:
    await network.register(ANN, prekeys=1)
    async with client_of(network, ANN).running() as client:
        await client.until_event("prekeys_low", ANN, 1)


async def test_a_refused_send_is_reported_with_its_reason(network: Network) -> None:
    await network.register(ANN)
    async with client_of(network, ANN).running() as client:
        client.send(ANN, CAT, "m1")
        await client.until_event("refused", "m1", device.NO_SUCH_NUMBER)


async def test_all_devices_reattach_after_a_network_restart(network: Network) -> None:
    await network.register(ANN, BEN)
    tcp_address, http_address = network.addresses.tcp, network.addresses.http
    async with client_of(network, ANN, BEN).running() as client:
        await network.stop()
        await client.until_event("lost", "cannot be reached")
        assert client.connection.is_open is False
        with pytest.raises(NetworkUnreached):
            await client.connection.check(ANN, [BEN])
        await network.start(tcp_address=tcp_address, http_address=http_address)
        await client.until(lambda: client.count("attached") == 4)
        client.send(ANN, BEN, "m1")
        await client.until_event("delivered", BEN, "m1")
    # One event, whatever the number of attempts.
    assert client.events.count(("lost", "cannot be reached")) == 1
