"""Transient envelopes: delivered to a device that is logged in, never stored, and never awaited."""

from __future__ import annotations

import pytest

from network.settings import Limits, Quotas
from tests.manual_clock import ManualClock
from tests.network.support import ALICE, BOB, Client, Network, ids, stored
from tidings.wire import device


async def send(client: Client, id: str, *, to: str = BOB) -> None:
    """Send a transient envelope of Alice, which is accepted at once."""
    n = client.send(ALICE, to, id, kind=device.TRANSIENT, body=b"sealed", ttl=25, trace="t1")
    assert await client.accepted(1) == [n]


async def both(network: Network) -> tuple[Client, Client]:
    """Connect Alice and Bob, and wait until Bob's mailbox has been read."""
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    n = alice.send(ALICE, BOB, "first")
    bob.ack(*await bob.deliveries(1))
    assert await alice.accepted(1) == [n]
    return alice, bob


async def test_a_logged_in_device_gets_a_transient_envelope_once_and_it_is_not_stored(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock)
    alice, bob = await both(network)
    await send(alice, "typing")
    (delivery,) = await bob.deliveries(1)
    assert (delivery.sender, delivery.to, delivery.id) == (ALICE, BOB, "typing")
    assert (delivery.kind, delivery.body, delivery.trace) == ("transient", b"sealed", "t1")
    # Without an acknowledgement it is neither stored nor delivered again.
    clock.advance(60.0)
    await bob.close()
    assert await stored(network) == []
    again = await network.connect(BOB)
    await again.nothing_came()


async def test_the_acknowledgement_of_a_transient_envelope_harms_no_other_delivery(network: Network) -> None:
    await network.start()
    alice, bob = await both(network)
    await send(alice, "typing")
    n = alice.send(ALICE, BOB, "message")
    typing, message = await bob.deliveries(2)
    assert ids([typing, message]) == ["typing", "message"]
    assert typing.n != message.n
    bob.ack(typing)
    await alice.nothing_came()
    bob.ack(message)
    assert await alice.accepted(1) == [n]


async def test_a_transient_envelope_to_a_device_that_is_offline_is_dropped(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    await send(alice, "typing")
    assert await stored(network) == []
    bob = await network.connect(BOB)
    await bob.nothing_came()
    n = alice.send(ALICE, BOB, "message")
    bob.ack(*await bob.deliveries(1))
    assert await alice.accepted(1) == [n]
    for count in range(100):
        await send(alice, f"typing{count}")
        n = alice.send(ALICE, BOB, f"message{count}")
        (first,) = await bob.deliveries(1)
        if first.kind == device.TRANSIENT:
            return
        # Dropped because the mailbox was being read, which another node may have requested.
        bob.ack(first)
        assert await alice.accepted(1) == [n]
    raise AssertionError("no transient envelope arrived")


async def test_a_transient_envelope_behind_waiting_messages_is_dropped(network: Network) -> None:
    await network.start(limits=Limits(window=1, store_after=60.0))
    alice, bob = await both(network)
    alice.send(ALICE, BOB, "one")
    (one,) = await bob.deliveries(1)
    alice.send(ALICE, BOB, "two")
    await send(alice, "typing")
    bob.ack(one)
    (two,) = await bob.deliveries(1)
    bob.ack(two)
    assert two.id == "two"
    await alice.accepted(2)
    await bob.nothing_came()


async def test_transient_envelopes_above_the_rate_of_the_pair_are_dropped_and_delay_no_message(
    network: Network,
) -> None:
    clock = ManualClock()
    await network.start(clock=clock, quotas=Quotas(pair_rate=1.0, pair_burst=2))
    alice, bob = await both(network)
    clock.advance(2.0)
    for n in range(5):
        await send(alice, f"t{n}")
    assert ids(await bob.deliveries(2)) == ["t0", "t1"]
    clock.advance(2.0)
    n = alice.send(ALICE, BOB, "message")
    (message,) = await bob.deliveries(1)
    bob.ack(message)
    assert (message.id, await alice.accepted(1)) == ("message", [n])


@pytest.mark.parametrize(("to", "reason"), [(BOB, device.BLOCKED), ("15559999999", device.NO_SUCH_NUMBER)])
async def test_a_transient_envelope_is_refused_like_a_message(network: Network, to: str, reason: str) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    headers = {"Authorization": f"Bearer {network.tokens[BOB]}"}
    async with network.http.put(f"/v1/blocks/{BOB}/{ALICE}", headers=headers) as response:
        assert response.status == 200
    alice = await network.connect(ALICE)
    alice.send(ALICE, to, "typing", kind=device.TRANSIENT)
    assert (await alice.next(device.Refused)).reason == reason
