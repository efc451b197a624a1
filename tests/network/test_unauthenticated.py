"""Limits on a live connection before its first login, and on how much is read after it."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import msgspec
import pytest

from network.connections.connections import make_unauthenticated
from network.connections.session import INEFFECTIVE
from network.settings import Limits
from tests.manual_clock import ManualClock
from tests.network.support import ALICE, BOB, TIMEOUT, Client, Network
from tidings.http.listener_settings import UnauthenticatedSettings
from tidings.wire import device

PAIRS = [("tcp", "sqlite"), ("msgpack", "sqlite")]


@pytest.fixture(params=PAIRS, ids=lambda pair: pair[0])
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    transport, database = request.param
    return transport, database


async def has_closed(client: Client) -> None:
    async with asyncio.timeout(TIMEOUT):
        await client.closed.wait()


async def test_a_connection_without_a_login_is_closed_in_time_despite_pings(network: Network) -> None:
    await network.start(limits=Limits(login=0.3))
    await network.register(ALICE)
    device_of_alice, client = await network.connect(ALICE), await network.connect()
    client.link.send(device.Ping())
    assert isinstance(await client.next_frame(), device.Pong)
    assert (await client.next(device.Closing)).reason == device.NO_LOGIN
    await has_closed(client)
    await device_of_alice.nothing_came()


async def test_before_a_login_only_logins_and_pings_have_an_effect(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    client, alice = await network.connect(), await network.connect(ALICE)
    client.link.send(device.Ack(n=list(range(1000))))
    client.link.send(device.Logout(1, ALICE))
    assert isinstance(await client.next_frame(), device.Ok)
    for frame in (device.Check(2, ALICE, [BOB]), device.Fetch(3, ALICE, [BOB])):
        client.link.send(frame)
        assert (await client.next(device.Failed)).reason == device.UNAUTHORIZED
    client.link.send(device.Send(4, ALICE, BOB, "a", device.MESSAGE, b"x"))
    assert (await client.next(device.Refused)).reason == device.INVALID
    await alice.nothing_came()
    await client.login(BOB, network.tokens[BOB])


async def test_a_frame_before_login_is_limited_to_4_kib(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    client = await network.connect()
    token = "x" * (4096 - 100)
    client.link.send(device.Login(1, ALICE, token))
    assert (await client.next(device.Failed)).reason == device.UNAUTHORIZED
    client.link.send(device.Login(2, ALICE, token + "x" * 100))
    if network.transport == "tcp":
        assert (await client.next(device.Closing)).reason == device.BAD_FRAME
    await has_closed(client)


async def test_an_excessive_declared_length_is_refused_before_its_bytes_arrive(network: Network) -> None:
    await network.start()
    reader, writer = await asyncio.open_connection(*network.addresses.tcp)
    writer.write((4096 + 1).to_bytes(4, "big"))
    async with asyncio.timeout(TIMEOUT):
        said = await reader.read()
    assert msgspec.msgpack.decode(said[4:], type=device.Closing).reason == device.BAD_FRAME
    writer.close()


async def test_logins_before_the_first_success_are_sequential_and_pings_immediate(network: Network) -> None:
    await network.start(delay=(0.2, 0.2))
    await network.register(ALICE)
    client = await network.connect()
    client.link.send(device.Login(1, ALICE, "wrong"))
    client.link.send(device.Ping())
    client.link.send(device.Login(2, ALICE, network.tokens[ALICE]))
    client.link.send(device.Login(3, ALICE, "wrong again"))
    assert isinstance(await client.next_frame(), device.Pong)
    assert (await client.next(device.Failed)).n == 1
    assert (await client.next(device.Ok)).n == 2
    assert (await client.next(device.Failed)).n == 3


@pytest.mark.one_node
async def test_unauthenticated_connections_are_limited_per_address(
    network: Network,
) -> None:
    await network.start(limits=Limits(unauthenticated_each=2))
    first, second = await network.connect(), await network.connect()
    if network.transport == "tcp":
        third = await network.connect()
        assert (await third.next(device.Closing)).reason == device.OVERLOADED
        await has_closed(third)
    await network.register(ALICE)
    await first.login(ALICE, network.tokens[ALICE])
    # The address counts as known from now on.
    more = [await network.connect() for _ in range(4)]
    for client in [*more, second, first]:
        await client.nothing_came()


@pytest.mark.one_node
async def test_the_oldest_unauthenticated_connection_is_closed_for_a_new_one(network: Network) -> None:
    clock = ManualClock()
    await network.start(limits=Limits(unauthenticated=2), clock=clock)
    await network.register(ALICE)
    first, second = await network.connect(), await network.connect()
    clock.advance(2)
    alice = await network.connect(ALICE)
    assert (await first.next(device.Closing)).reason == device.OVERLOADED
    await second.nothing_came()
    await alice.nothing_came()


async def test_a_connection_whose_device_logged_out_may_log_in_again(network: Network) -> None:
    await network.start(limits=Limits(login=0.2))
    await network.register(ALICE)
    client = await network.connect(ALICE)
    assert isinstance(await client.request(lambda n: device.Logout(n, ALICE)), device.Ok)
    client.send(ALICE, BOB, "late")
    assert (await client.next(device.Refused)).reason == device.INVALID
    again = await network.connect(ALICE)
    await client.login(ALICE, network.tokens[ALICE])
    assert (await again.next(device.Closing)).reason == device.REPLACED


async def test_an_oversized_acknowledgement_is_a_bad_frame(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    alice = await network.connect(ALICE)
    alice.link.send(device.Ack(n=[1] * 100_000))
    await alice.nothing_came()
    alice.link.send(device.Ack(n=[1] * 100_001))
    assert (await alice.next(device.Closing)).reason == device.BAD_FRAME


async def test_reading_pauses_at_the_limit_of_undecided_sends_until_half_are_decided(network: Network) -> None:
    await network.start(limits=Limits(sends=4, store_after=0.3))
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    sent = [alice.send(ALICE, BOB, f"m{i}") for i in range(6)]
    first = await bob.deliveries(4)
    await bob.nothing_came()
    bob.ack(*first[:3])
    assert sorted(await alice.accepted(3)) == sent[:3]
    await bob.deliveries(2)
    await alice.accepted(3)


async def test_a_repeated_undecided_send_counts_once(network: Network) -> None:
    await network.start(limits=Limits(sends=8))
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    for _ in range(5):
        last = [alice.send(ALICE, BOB, f"m{i}") for i in range(3)]
    bob.ack(*await bob.deliveries(3))
    assert sorted(await alice.accepted(3)) == last
    alice.send(ALICE, BOB, "m3")
    await bob.deliveries(1)


async def test_hundreds_of_devices_reconnecting_from_one_address_log_in(network: Network) -> None:
    numbers = [f"1555010{i:04}" for i in range(250)]
    await network.start()
    await network.register(*numbers, prekeys=0, kyber=False)

    async def come_back(number: str) -> None:
        while True:
            reader, writer = await asyncio.open_connection(*network.addresses.tcp)
            body = msgspec.msgpack.encode(device.Login(1, number, network.tokens[number]))
            writer.write(len(body).to_bytes(4, "big") + body)
            try:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = msgspec.msgpack.decode(await reader.readexactly(size), type=device.FromNetwork)
            except (OSError, asyncio.IncompleteReadError):
                frame = None
            writer.close()
            if isinstance(frame, device.Ok):
                return

    async with asyncio.timeout(3 * TIMEOUT):
        await asyncio.gather(*map(come_back, numbers))


async def test_websocket_logins_consume_nothing_of_the_http_limits(network: Network) -> None:
    # One connection at once, and no other within an hour.
    await network.start(unauthenticated=UnauthenticatedSettings(rate=0.0001, rate_each=0.0001))
    await network.register(ALICE)
    for _ in range(5):
        client = await network.connect(ALICE)
        await client.close()
    url = f"http://127.0.0.1:{network.addresses.http[1]}/health"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200


def test_rate_limit_tokens_of_a_connection_that_logs_in_are_refunded() -> None:
    clock = ManualClock()
    limiter = make_unauthenticated(clock, Limits(unauthenticated=10_000, unauthenticated_each=10_000))
    # Per address: 60 at once, then 10 per second.
    burst = 60
    for _ in range(3 * burst):
        slot = limiter.admit("192.0.2.1", 1.0)
        assert slot is not None
        slot.reserve()
        slot.mark_authenticated()
    entered = [limiter.admit("192.0.2.2", 1.0) is not None for _ in range(burst + 1)]
    assert burst - 1 <= sum(entered) <= burst
    clock.advance(1 / 10)
    assert limiter.admit("192.0.2.2", 1.0) is not None
    assert limiter.admit("192.0.2.3", 1.0) is not None


def test_frames_without_effect_are_rate_limited_after_a_burst() -> None:
    # 1,000 at once, then 100 per second.
    full_at = INEFFECTIVE.consume(0.0, 100.0, 1000)
    assert INEFFECTIVE.wait(full_at, 100.0, 0) == pytest.approx(0, abs=1e-6)
    full_at = INEFFECTIVE.consume(full_at, 100.0)
    assert INEFFECTIVE.wait(full_at, 100.0, 0) == pytest.approx(0.01)
    full_at = INEFFECTIVE.consume(full_at, 100.0, 1000)
    assert INEFFECTIVE.wait(full_at, 100.0, 0) == pytest.approx(10.01)
    assert INEFFECTIVE.wait(INEFFECTIVE.consume(full_at, 200.0), 200.0, 0) == 0


async def test_every_one_of_many_refused_connections_receives_overloaded(network: Network) -> None:
    await network.start(limits=Limits(unauthenticated_each=1))
    held = await network.connect(transport="tcp")
    sockets = [socket.create_connection(network.addresses.tcp, timeout=TIMEOUT) for _ in range(200)]
    said = [await asyncio.to_thread(one.recv, 1000) for one in sockets]
    assert all(msgspec.msgpack.decode(text[4:], type=device.Closing).reason == device.OVERLOADED for text in said)
    for one in sockets:
        one.close()
    await held.nothing_came()
