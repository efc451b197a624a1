"""A large mailbox or a burst never costs a device its connection: the bytes in flight are bounded."""

from __future__ import annotations

from network.connections import session
from network.settings import Limits
from tests.manual_clock import ManualClock
from tests.network.support import Client, Network
from tidings.config.env import MIB
from tidings.wire import device

ALICE, BOB, CAROL, DAVE = "15550000001", "15550000002", "15550000003", "15550000004"
COUNT = 200


def body(i: int) -> bytes:
    """Return a body of the maximum size, different for each `i`."""
    return i.to_bytes(2, "big") * (session.MAX_BODY // 2)


async def send_all(client: Client, to: str, *, accepted: bool) -> None:
    """Send all messages, in chunks that fit into the sender's own buffer."""
    for start in range(0, COUNT, 50):
        for i in range(start, start + 50):
            client.send(ALICE, to, f"{to}-{i}", body=body(i))
        if accepted:
            await client.accepted(50)
        else:
            await client.nothing_came()


async def read_all(client: Client, count: int) -> list[device.Deliver]:
    """Read `count` deliveries and acknowledge each as it arrives."""
    seen = []
    for _ in range(count):
        (delivery,) = await client.deliveries(1)
        seen.append(delivery)
        client.ack(delivery)
    await client.nothing_came()
    return seen


async def test_a_mailbox_larger_than_the_write_buffer_is_read_on_one_connection(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    await send_all(alice, BOB, accepted=True)

    bob = await network.connect(BOB)
    seen = await read_all(bob, COUNT)
    assert [(delivery.id, delivery.body) for delivery in seen] == [(f"{BOB}-{i}", body(i)) for i in range(COUNT)]
    assert not bob.closed.is_set()
    # Live delivery works again after that.
    alice.send(ALICE, BOB, "live")
    assert (await bob.next(device.Deliver)).id == "live"


async def test_a_burst_for_an_attached_device_waits_for_its_acknowledgements(network: Network) -> None:
    await network.start(clock=ManualClock())
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    await send_all(alice, BOB, accepted=False)
    first = await bob.deliveries(4 * MIB // session.MAX_BODY)
    await bob.nothing_came()

    bob.ack(*first)
    seen = await read_all(bob, COUNT - len(first))
    assert [delivery.id for delivery in first + seen] == [f"{BOB}-{i}" for i in range(COUNT)]
    await alice.accepted(COUNT)
    assert not bob.closed.is_set()


async def test_a_fleet_reads_all_its_mailboxes_on_one_connection(network: Network) -> None:
    await network.start(limits=Limits(window_bytes=MIB, session_bytes=2 * MIB, write_buffer=4 * MIB))
    await network.register(ALICE, BOB, CAROL, DAVE)
    alice = await network.connect(ALICE)
    fleet = [BOB, CAROL, DAVE]
    for i in range(40):
        for number in fleet:
            alice.send(ALICE, number, f"{number}-{i}", body=body(i))
    await alice.accepted(120)

    client = await network.connect()
    for n, number in enumerate(fleet, start=1):
        client.link.send(device.Login(n=n, number=number, token=network.tokens[number]))
    seen: list[device.Deliver] = []
    logins = 0
    while len(seen) < 120:
        frame = await client.request(lambda n: device.Ping())
        if isinstance(frame, device.Deliver):
            seen.append(frame)
            client.ack(frame)
        elif isinstance(frame, device.Ok):
            logins += 1
        else:
            assert isinstance(frame, device.Pong)
    assert logins == 3
    for number in fleet:
        ids = [delivery.id for delivery in seen if delivery.to == number]
        assert ids == [f"{number}-{i}" for i in range(40)]
    assert not client.closed.is_set()


async def test_a_disconnecting_device_frees_window_for_others_on_its_connection(network: Network) -> None:
    await network.start(limits=Limits(session_bytes=MIB), clock=ManualClock())
    await network.register(ALICE, BOB, CAROL)
    alice = await network.connect(ALICE)
    fleet = await network.connect(BOB, CAROL)
    for i in range(8):
        alice.send(ALICE, BOB, f"b{i}", body=body(i))
    await fleet.deliveries(8)
    alice.send(ALICE, CAROL, "c")
    await alice.nothing_came()
    await fleet.nothing_came()

    replacing = await network.connect(BOB)
    assert [delivery.id for delivery in await replacing.deliveries(8)] == [f"b{i}" for i in range(8)]
    assert (await fleet.next(device.Closing)).number == BOB
    delivery = await fleet.next(device.Deliver)
    assert (delivery.to, delivery.id) == (CAROL, "c")
