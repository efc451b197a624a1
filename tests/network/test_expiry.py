"""Envelopes whose time to live has expired."""

from __future__ import annotations

from tests.manual_clock import ManualClock
from tests.network.support import ALICE, BOB, CAROL, Network, ids, stored
from tidings.wire import device


async def test_the_sender_is_notified_which_message_expired(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, message_ttl=3600, expiry_interval=0.05)
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    alice.send(ALICE, BOB, "short", kind=device.PREKEY, ttl=10)
    alice.send(ALICE, BOB, "long")
    alice.send(ALICE, BOB, "receipt", kind=device.READ, body=b"", refs=["x"], ttl=10)
    await alice.accepted(3)
    clock.advance(11)
    (notice,) = await alice.deliveries(1)
    assert (notice.kind, notice.sender, notice.to, notice.refs) == (device.EXPIRED, BOB, ALICE, ["short"])
    alice.ack(notice)
    assert await stored(network) in (["long"], ["long", notice.id])

    # No sender can request a longer time to live than the network's own limit.
    clock.advance(3600)
    (notice,) = await alice.deliveries(1)
    assert notice.refs == ["long"]
    alice.ack(notice)
    bob = await network.connect(BOB)
    await bob.nothing_came()


async def test_an_expired_envelope_is_not_delivered_even_before_its_deletion(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, expiry_interval=3600)
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    alice.send(ALICE, BOB, "short", ttl=10)
    alice.send(ALICE, BOB, "long")
    await alice.accepted(2)
    clock.advance(10)
    bob = await network.connect(BOB)
    assert ids(await bob.deliveries(1)) == ["long"]
    assert await stored(network) == ["short", "long"]


async def test_an_envelope_in_flight_does_not_expire_until_its_device_disconnects(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, expiry_interval=0.05)
    await network.register(ALICE, BOB, CAROL)
    alice = await network.connect(ALICE)
    alice.send(ALICE, BOB, "in-flight", ttl=10)
    alice.send(ALICE, CAROL, "offline", ttl=10)
    await alice.accepted(2)
    bob = await network.connect(BOB)
    await bob.deliveries(1)
    clock.advance(11)
    (notice,) = await alice.deliveries(1)
    assert notice.refs == ["offline"]
    assert "in-flight" in await stored(network)
    await bob.close()
    (notice,) = await alice.deliveries(1)
    assert notice.refs == ["in-flight"]


async def test_an_offline_sender_receives_the_expiry_notice_at_its_next_login(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, expiry_interval=0.05)
    await network.register(ALICE, BOB, CAROL)
    alice = await network.connect(ALICE, CAROL)
    for i in range(450):
        alice.send(ALICE, BOB, f"m{i}", ttl=60)
    alice.send(CAROL, BOB, "last", ttl=60)
    await alice.accepted(451)
    await alice.close()
    clock.advance(61)
    # The sender of the last envelope is notified on another connection, which shows that the pass has run.
    carol = await network.connect(CAROL)
    carol.ack(*await carol.deliveries(1))
    alice = await network.connect(ALICE)
    notices = await alice.deliveries(450)
    assert [notice.refs for notice in notices] == [[f"m{i}"] for i in range(450)]
