"""Logins, and the ways in which connections end."""

from __future__ import annotations

import asyncio
import functools
import itertools

import msgspec
import pytest

from network.settings import Limits, Quotas
from tests.manual_clock import ManualClock
from tests.network.support import ALICE, BOB, REGISTRATION_KEY, TIMEOUT, Client, Network, ids, registration, stored
from tidings.e2ee.xeddsa import IdentityKeyPair
from tidings.wire import device


async def test_a_login_with_a_wrong_token_or_number_fails_as_unauthorized(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    client = await network.connect()
    token = network.tokens[ALICE]
    for number, attempt in ((ALICE, ""), (ALICE, token[:-1]), (BOB, token), ("nobody", token), ("", "")):
        failed = await client.request(functools.partial(device.Login, number=number, token=attempt))
        assert isinstance(failed, device.Failed)
        assert failed.reason == device.UNAUTHORIZED
    await client.login(ALICE, token)


async def test_a_second_login_of_the_same_device_on_one_connection_changes_nothing(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    client = await network.connect(ALICE, ALICE)
    client.send(ALICE, ALICE, "one")
    assert ids(await client.deliveries(1)) == ["one"]
    await client.nothing_came()


async def test_the_highest_epoch_stays_attached_and_a_lower_one_is_refused(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    token = network.tokens[ALICE]

    async def log_in(epoch: int) -> tuple[Client, object]:
        client = await network.connect()
        return client, await client.request(functools.partial(device.Login, number=ALICE, token=token, epoch=epoch))

    first, response = await log_in(4)
    assert isinstance(response, device.Ok)
    late, refused = await log_in(3)
    assert isinstance(refused, device.Failed)
    assert refused.reason == device.STALE_EPOCH
    await late.close()
    await first.nothing_came()
    same, response = await log_in(4)
    assert isinstance(response, device.Ok)
    assert (await first.next(device.Closing)).reason == device.REPLACED
    later, response = await log_in(5)
    assert isinstance(response, device.Ok)
    assert (await same.next(device.Closing)).reason == device.REPLACED
    for path, body, bearer in (
        (f"/v1/keys/{ALICE}", {"epoch": 4, "prekeys": []}, token),
        ("/v1/registrations", registration(ALICE) | {"epoch": 4}, REGISTRATION_KEY),
    ):
        method = "PUT" if "keys" in path else "POST"
        status, error = await network.request(method, path, body, token=bearer)
        assert (status, error["error"]["reason"]) == (409, "stale_epoch")
        if method == "PUT":
            assert (await network.request(method, path, body | {"epoch": 5}, token=bearer))[0] == 200
    await later.nothing_came()
    # Without an epoch the newest login wins. When no connection is logged in, an epoch has no effect.
    plain, response = await log_in(0)
    assert isinstance(response, device.Ok)
    assert (await later.next(device.Closing)).reason == device.REPLACED
    restored, response = await log_in(1)
    assert isinstance(response, device.Ok)
    for client in (first, same, later, plain, restored):
        await client.close()


async def test_many_devices_log_in_on_one_connection(network: Network) -> None:
    await network.start()
    numbers = [f"1555010{i:04}" for i in range(300)]
    await network.register(*numbers, ALICE, prekeys=0)
    alice = await network.connect(ALICE)
    # The network requests pre-keys at once from a device that has none.
    assert (await alice.next(device.PreKeysLow)).number == ALICE
    for number in numbers[:100]:
        alice.send(ALICE, number, f"to-{number}")
    await alice.accepted(100)
    fleet = await network.connect()
    for n, number in enumerate(numbers):
        fleet.link.send(device.Login(n, number, network.tokens[number]))
    ok: set[int] = set()
    delivered: set[str] = set()
    while len(ok) < 300 or len(delivered) < 100:
        frame = await fleet.next(msgspec.Struct)
        if isinstance(frame, device.Ok):
            ok.add(frame.n)
        elif isinstance(frame, device.Deliver):
            assert numbers.index(frame.to) in ok
            delivered.add(frame.to)
            fleet.ack(frame)
    assert delivered == set(numbers[:100])


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xc1", b"{}", b"[]", b"null", b'{"t":"fax","n":1}', b'{"t":"login","n":"one"}', b'{"t":"send","n":1}'),
        b'{"t":"login","n":-1,"number":"15550000001","token":"x"}',
        b'{"t":"ack","n":[1,-1]}',
        b'{"t":"logout","n":9223372036854775808,"number":"15550000001"}',
    ],
)
async def test_a_malformed_frame_closes_the_connection_with_bad_frame(network: Network, data: bytes) -> None:
    await network.start()
    client = await network.connect()
    if network.transport != "json" and data.startswith(b"{"):
        data = msgspec.msgpack.encode(msgspec.json.decode(data))
    await client.link.send_raw(data)
    closing = await client.next(device.Closing)
    assert (closing.reason, closing.number) == (device.BAD_FRAME, "")
    assert closing.detail
    async with asyncio.timeout(TIMEOUT):
        await client.closed.wait()


NOT_UTF8 = {False: b"\x81\xa1t\xa1\xff", True: b'{"t":"\xff"}'}
# Deeper than any version of Python decodes; JSON without an end, which would be too long.
NESTED = {
    False: b"\x82\xa1t\xa4ping\xa1x" + b"\x91" * 240_000 + b"\x90",
    True: b'{"t":"ping","x":' + b"[" * 240_000,
}


@pytest.mark.parametrize("data", [NOT_UTF8, NESTED], ids=["no UTF-8", "nested"])
async def test_a_frame_that_fails_to_decode_closes_the_connection_with_bad_frame(
    network: Network, data: dict[bool, bytes]
) -> None:
    await network.start()
    await network.register(ALICE)
    client = await network.connect(ALICE)
    await client.link.send_raw(data[network.transport == "json"])
    closing = await client.next(device.Closing)
    assert (closing.reason, closing.number) == (device.BAD_FRAME, "")


async def test_an_oversized_frame_is_not_read(network: Network) -> None:
    await network.start()
    client = await network.connect(transport="tcp")
    await client.link.send_raw(bytes(4 * 1024 * 1024 + 1))
    assert (await client.next(device.Closing)).reason == device.BAD_FRAME


async def test_a_websocket_without_a_known_subprotocol_is_refused_with_their_list(network: Network) -> None:
    await network.start()
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    async with network.http.get("/v1/connect", headers=headers) as response:
        assert response.status == 400
        assert "tidings.v1.msgpack" in (await response.json())["error"]["detail"]


async def test_unknown_fields_of_a_frame_are_ignored(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    client = await network.connect()
    frame = {"t": "login", "n": 7, "number": ALICE, "token": network.tokens[ALICE], "colour": "blue"}
    await client.link.send_raw((msgspec.json if network.transport == "json" else msgspec.msgpack).encode(frame))
    assert (await client.next(device.Ok)).n == 7


async def test_a_silent_connection_is_closed_as_idle_and_pings_keep_one_open(network: Network) -> None:
    await network.start(limits=Limits(idle=0.4))
    silent, talking = await network.connect(), await network.connect()
    keep_on = asyncio.Event()

    async def talk() -> None:
        while not keep_on.is_set():
            await talking.nothing_came()

    chatter = asyncio.create_task(talk())
    assert (await silent.next(device.Closing)).reason == device.IDLE
    keep_on.set()
    await chatter
    async with asyncio.timeout(TIMEOUT):
        await silent.closed.wait()


@pytest.mark.one_node
async def test_connections_over_the_limit_are_refused(network: Network) -> None:
    await network.start(limits=Limits(connections=1))
    first = await network.connect()
    second = await network.connect()
    assert (await second.next(device.Closing)).reason == device.OVERLOADED
    await first.nothing_came()


async def test_a_slow_reader_is_disconnected_and_loses_nothing(network: Network) -> None:
    await network.start(
        limits=Limits(
            write_buffer=1_000_000, window=100_000, window_bytes=2**40, session_bytes=2**40, undecided_bytes=2**40
        ),
        quotas=Quotas(share_bytes=2**40, pair_rate=0),
        clock=ManualClock(),
    )
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    slow = await network.connect(BOB)
    slow.link.stop_reading()

    sent: list[int] = []
    # However large the socket buffers on the way are, the network stops reading in the end.
    accepted = asyncio.create_task(alice.next(device.Accepted))
    for i in itertools.count():
        sent.append(alice.send(ALICE, BOB, f"m{i}", body=bytes(100_000)))
        await asyncio.sleep(0)
        if accepted.done():
            break
        assert i < 1500
        if i % 10 == 9:
            await asyncio.sleep(0.05)
    numbers = (await accepted).n
    while len(numbers) < len(sent):
        numbers += (await alice.next(device.Accepted)).n
    assert sorted(numbers) == sent
    assert sorted(await stored(network)) == sorted(f"m{i}" for i in range(len(sent)))


async def test_stopping_stores_and_accepts_undecided_envelopes_and_sends_the_reason(network: Network) -> None:
    await network.start(limits=Limits(window=2), clock=ManualClock())
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    sent = [alice.send(ALICE, BOB, f"m{i}") for i in range(4)]
    await bob.deliveries(2)
    await alice.nothing_came()
    await network.stop()
    assert await alice.accepted(4) == sent
    assert (await alice.next(device.Closing)).reason == device.SHUTDOWN
    assert (await bob.next(device.Closing)).reason == device.SHUTDOWN
    assert await stored(network) == [f"m{i}" for i in range(4)]


async def test_the_mailbox_and_its_order_survive_a_restart(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    alice.send(ALICE, BOB, "before")
    await alice.accepted(1)
    await network.stop()

    # A clock that was set back does not change the order.
    await network.start(clock=ManualClock(1000.0))
    alice = await network.connect(ALICE)
    # The process no longer remembers what it accepted, but the mailbox still recognises a repeated envelope.
    alice.send(ALICE, BOB, "before")
    alice.send(ALICE, BOB, "after")
    await alice.accepted(2)
    bob = await network.connect(BOB)
    assert ids(await bob.deliveries(2)) == ["before", "after"]
    await bob.nothing_came()


async def test_registering_again_disconnects_the_previous_device(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    old_token = network.tokens[BOB]
    await network.register(BOB)
    assert (await bob.next(device.Closing)).number == BOB
    failed = await bob.request(lambda n: device.Login(n, BOB, old_token))
    assert failed.reason == device.UNAUTHORIZED
    await alice.nothing_came()


async def test_a_device_that_fetched_a_bundle_is_notified_of_the_new_identity(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    await alice.request(lambda n: device.Fetch(n, ALICE, [BOB]))
    identity = IdentityKeyPair.generate()
    await network.register(BOB, identity=identity)
    (notice,) = await alice.deliveries(1)
    assert (notice.kind, notice.sender, notice.to, notice.body) == (device.IDENTITY, BOB, ALICE, identity.public)
    alice.ack(notice)
    # Announced once: a session with the new identity needs a new fetch.
    await network.register(BOB)
    await alice.nothing_came()


async def test_a_new_identity_is_announced_even_after_the_number_was_unregistered(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    await alice.request(lambda n: device.Fetch(n, ALICE, [BOB]))
    identity = IdentityKeyPair.generate()
    await unregister(network, BOB)
    await network.stop()
    await network.start()
    await network.register(BOB, identity=identity)
    alice = await network.connect(ALICE)
    (notice,) = await alice.deliveries(1)
    assert (notice.kind, notice.sender, notice.body) == (device.IDENTITY, BOB, identity.public)
    alice.ack(notice)

    # A registration with the same key as before is not announced.
    await alice.request(lambda n: device.Fetch(n, ALICE, [BOB]))
    await unregister(network, BOB)
    await network.register(BOB, identity=identity)
    await alice.nothing_came()


async def test_a_fetchers_new_identity_is_announced_to_the_owner_of_the_bundle(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    await bob.request(lambda n: device.Fetch(n, BOB, [ALICE]))
    identity = IdentityKeyPair.generate()
    await network.register(BOB, identity=identity)
    (notice,) = await alice.deliveries(1)
    assert (notice.kind, notice.sender, notice.body) == (device.IDENTITY, BOB, identity.public)


async def unregister(network: Network, number: str) -> None:
    status, _ = await network.request("DELETE", f"/v1/registrations/{number}", token=network.tokens[number])
    assert status == 200


async def test_registering_again_with_the_same_identity_notifies_nobody(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    body = registration(BOB)
    for _ in range(2):
        status, _response = await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY)
        assert status == 201
        alice = await network.connect(ALICE)
        await alice.request(lambda n: device.Fetch(n, ALICE, [BOB]))
    await alice.nothing_came()
