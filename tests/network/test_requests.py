"""Checks and fetches on a live connection."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from network.connections.session import DeviceSession
from network.directory.lookups import MissingNumbers
from network.settings import DeviceRateLimits
from tests.live_objects import live_objects
from tests.network.support import ALICE, BOB, CAROL, Client, Network
from tidings.wire import device


def fetch(*numbers: str, requester: str = ALICE):  # type: ignore[no-untyped-def]
    return lambda n: device.Fetch(n, requester, list(numbers))


async def test_a_check_returns_registered_numbers_in_the_requested_order(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    alice = await network.connect(ALICE)
    requested = [CAROL, "15559999999", "", "junk", BOB, CAROL, "१५५५०००००००"]
    checked = await alice.request(lambda n: device.Check(n, ALICE, requested))
    assert checked.registered == [CAROL, BOB]


async def test_a_check_accepts_ten_thousand_numbers_and_no_more(network: Network) -> None:
    await network.start()
    numbers = [f"1666{i:07}" for i in range(10_000)]
    registered = numbers[::1111]
    await network.register(ALICE, *registered, prekeys=0)
    alice = await network.connect(ALICE)
    await alice.next(device.PreKeysLow)
    assert (await alice.request(lambda n: device.Check(n, ALICE, numbers))).registered == registered
    failed = await alice.request(lambda n: device.Check(n, ALICE, [*numbers, BOB]))
    assert (type(failed), failed.reason) == (device.Failed, device.TOO_LARGE)


async def test_a_second_check_of_a_device_is_busy_while_the_first_is_in_flight(network: Network) -> None:
    await network.start(delay=(0.2, 0.2))
    await network.register(ALICE, BOB)
    client = await network.connect(ALICE, BOB)
    client.link.send(device.Check(101, ALICE, [BOB]))
    client.link.send(device.Check(102, ALICE, [BOB]))
    client.link.send(device.Check(103, BOB, [BOB]))
    busy = await client.next(device.Failed)
    assert (busy.n, busy.reason) == (102, device.BUSY)
    assert {(await client.next(device.Checked)).n for _ in range(2)} == {101, 103}
    assert isinstance(await client.request(lambda n: device.Check(n, ALICE, [BOB])), device.Checked)


async def test_only_a_device_logged_in_on_this_connection_may_check_or_fetch(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    for make in (lambda n: device.Check(n, BOB, [ALICE]), fetch(ALICE, requester=BOB)):
        failed = await alice.request(make)
        assert (type(failed), failed.reason) == (device.Failed, device.UNAUTHORIZED)


async def test_a_bundle_contains_everything_a_session_needs(network: Network) -> None:
    await network.start()
    await network.register(ALICE, CAROL)
    await network.register(BOB, kyber=False, prekeys=0)
    alice = await network.connect(ALICE)
    carols, bobs = (await alice.request(fetch(CAROL, "15559999999", BOB, CAROL))).bundles
    assert (carols.number, carols.registration_id, carols.prekey_id, carols.kyber_prekey_id) == (CAROL, 4711, 1, 900)
    assert len(carols.kyber_prekey) == 1569
    assert len(carols.kyber_prekey_signature) == len(carols.signed_prekey_signature) == 64
    assert len(carols.identity_key) == len(carols.signed_prekey) == len(carols.prekey) == 33
    assert (bobs.number, bobs.prekey, bobs.prekey_id, bobs.kyber_prekey) == (BOB, None, None, None)


async def test_exhausted_one_time_keys_leave_the_last_resort_key(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    await network.register(BOB, prekeys=2, kyber_prekeys=1)
    alice = await network.connect(ALICE)
    bundles = [(await alice.request(fetch(BOB))).bundles[0] for _ in range(4)]
    assert [bundle.prekey_id for bundle in bundles] == [1, 2, None, None]
    assert [bundle.kyber_prekey_id for bundle in bundles] == [1, 900, 900, 900]


async def test_concurrent_requests_receive_each_one_time_key_exactly_once(network: Network) -> None:
    await network.start(rate_limits=DeviceRateLimits(one_time=500))
    requesters = [f"1555020{i:04}" for i in range(10)]
    await network.register(*requesters)
    await network.register(BOB, CAROL, prekeys=60, kyber_prekeys=30)
    clients = [await network.connect(requester) for requester in requesters]

    async def fetch_often(client: Client, requester: str) -> list[device.Bundle]:
        bundles = []
        for _ in range(7):
            bundles += (await client.request(fetch(BOB, CAROL, requester=requester))).bundles
        return bundles

    responses = await asyncio.gather(*(fetch_often(c, a) for c, a in zip(clients, requesters, strict=True)))
    for number in (BOB, CAROL):
        bundles = [bundle for response in responses for bundle in response if bundle.number == number]
        handed_out = sorted(bundle.prekey_id for bundle in bundles if bundle.prekey_id is not None)
        assert handed_out == list(range(1, 61))
        assert len({bundle.prekey for bundle in bundles if bundle.prekey}) == 60
        kyber = sorted(bundle.kyber_prekey_id or 0 for bundle in bundles if bundle.kyber_prekey_id != 900)
        assert kyber == list(range(1, 31))


async def test_a_fetch_of_more_than_500_numbers_is_refused(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    alice = await network.connect(ALICE)
    failed = await alice.request(fetch(*[BOB] * 501))
    assert (type(failed), failed.reason) == (device.Failed, device.TOO_LARGE)


async def test_a_device_is_notified_once_of_low_keys_and_again_when_they_are_exhausted(
    network: Network,
) -> None:
    await network.start(rate_limits=DeviceRateLimits(one_time=500))
    await network.register(ALICE)
    await network.register(BOB, prekeys=21)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    await alice.request(fetch(BOB))
    await bob.nothing_came()
    await alice.request(fetch(BOB))
    low = await bob.next(device.PreKeysLow)
    assert (low.number, low.remaining) == (BOB, 19)
    for _ in range(18):
        await alice.request(fetch(BOB))
    await bob.nothing_came()
    await alice.request(fetch(BOB))
    assert (await bob.next(device.PreKeysLow)).remaining == 0


async def test_a_device_with_few_keys_is_notified_at_login(network: Network) -> None:
    await network.start()
    await network.register(ALICE, prekeys=19, kyber_prekeys=3)
    alice = await network.connect(ALICE)
    low = await alice.next(device.PreKeysLow)
    assert (low.number, low.remaining, low.kyber_remaining) == (ALICE, 19, 3)


async def test_a_distant_network_delays_calls_without_queueing_or_reordering(network: Network) -> None:
    await network.start(delay=(0.05, 0.15))
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    loop = asyncio.get_running_loop()
    started = loop.time()
    sent = [alice.send(ALICE, BOB, f"m{i}") for i in range(200)]
    deliveries = []
    for _ in sent:
        deliveries += await bob.deliveries(1)
        if len(deliveries) == 1:
            assert loop.time() - started > 0.04
        bob.ack(deliveries[-1])
    assert await alice.accepted(200) == sent
    assert [delivery.id for delivery in deliveries] == [f"m{i}" for i in range(200)]
    # Sequential requests would take at least 20 s.
    assert loop.time() - started < 15


async def test_a_device_that_checked_a_missing_number_is_notified_when_it_registers(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    assert (await alice.request(lambda n: device.Check(n, ALICE, [CAROL, BOB]))).registered == [BOB]
    await network.register(CAROL)
    (notice,) = await alice.deliveries(1)
    assert (notice.kind, notice.sender, notice.to, len(notice.body)) == (device.IDENTITY, CAROL, ALICE, 33)
    alice.ack(notice)
    # One notice, and only to devices that asked for the number and did not find it.
    assert (await bob.request(lambda n: device.Check(n, BOB, [CAROL]))).registered == [CAROL]
    await network.register(CAROL)
    await alice.nothing_came()
    await bob.nothing_came()


def test_remembered_missing_numbers_are_bounded() -> None:
    missing_numbers = MissingNumbers()
    for requester in range(9):
        missing_numbers.add(f"requester {requester}", [CAROL])
    assert len(missing_numbers.take([CAROL])) == 8
    assert missing_numbers.take([CAROL]) == []
    missing_numbers.add(ALICE, map(str, range(50_001)))
    assert missing_numbers.take(["0"]) == []
    assert missing_numbers.take(["50000"]) == [("50000", ALICE)]
    missing_numbers.discard(ALICE, ["1"])
    assert missing_numbers.take(["1"]) == []


async def test_a_check_of_a_connection_that_is_lost_at_once_does_not_stay_in_flight(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    await network.connect(ALICE)
    (session,) = [one for one in live_objects(DeviceSession) if ALICE in one.devices]
    link: Any = session.transport
    done = asyncio.get_running_loop().create_future()

    def lose() -> None:
        # A write fails, and in the same iteration of the event loop a frame that was received before is handled.
        link._transport.abort()
        body = msgspec.msgpack.encode(device.Check(77, ALICE, [BOB]))
        link._incoming += len(body).to_bytes(4, "big") + body
        link._read_on()
        done.set_result(None)

    asyncio.get_running_loop().call_soon(lose)
    await done
    again = await network.connect(ALICE)
    assert isinstance(await again.request(lambda n: device.Check(n, ALICE, [BOB])), device.Checked)
