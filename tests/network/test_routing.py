"""Guarantees for senders and recipients while both are connected, or only one of them is."""

from __future__ import annotations

import pytest

from network.settings import Limits
from tests import statements
from tests.manual_clock import ManualClock
from tests.network.support import ALICE, BOB, CAROL, Network, ids, stored, until_there_are
from tidings.wire import device


async def test_between_online_devices_accepted_means_acknowledged_without_storage(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock)
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)

    n = alice.send(ALICE, BOB, "one", kind=device.PREKEY, body=b"\x00\xff sealed", refs=["r1", "r2"])
    (delivery,) = await bob.deliveries(1)
    assert (delivery.sender, delivery.to, delivery.id, delivery.kind) == (ALICE, BOB, "one", device.PREKEY)
    assert (delivery.body, delivery.refs) == (b"\x00\xff sealed", ["r1", "r2"])
    assert delivery.timestamp == int(clock.now() * 1000)
    await alice.nothing_came()
    assert await stored(network) == []

    bob.ack(delivery)
    assert await alice.accepted(1) == [n]
    assert await stored(network) == []


@pytest.mark.one_node
async def test_the_first_envelope_to_a_device_that_has_read_its_mailbox_needs_no_query(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    carol = await network.connect(CAROL)
    carol.send(CAROL, BOB, "stored")
    await carol.accepted(1)
    await carol.close()
    await network.stop()
    # The new process knows nobody.
    await network.start()
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    bob.ack(*await bob.deliveries(1))
    await until_there_are(network, rows=[], messages=[])
    with statements.sent() as sent:
        alice.send(ALICE, BOB, "first")
        bob.ack(*await bob.deliveries(1))
        await alice.accepted(1)
    queries = [statement for statement, _ in sent if "registrations" in statement or "envelopes" in statement]
    assert queries == []


async def test_a_block_before_or_after_the_login_of_a_device_refuses_its_first_envelope(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    await network.request("PUT", f"/v1/blocks/{BOB}/{ALICE}", token=network.tokens[BOB])
    await network.stop()
    await network.start()
    alice, bob, carol = [await network.connect(number) for number in (ALICE, BOB, CAROL)]
    alice.send(ALICE, BOB, "blocked")
    assert (await alice.next(device.Refused)).reason == device.BLOCKED
    await network.request("PUT", f"/v1/blocks/{BOB}/{CAROL}", token=network.tokens[BOB])
    carol.send(CAROL, BOB, "blocked-later")
    assert (await carol.next(device.Refused)).reason == device.BLOCKED
    await bob.nothing_came()


async def test_simultaneous_acceptances_share_one_frame(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    sent = [alice.send(ALICE, BOB, f"m{i}") for i in range(50)]
    bob.ack(*await bob.deliveries(50))
    assert (await alice.next(device.Accepted)).n == sent


async def test_an_envelope_not_acknowledged_in_time_is_stored_and_accepted(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock)
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    n = alice.send(ALICE, BOB, "slow")
    (delivery,) = await bob.deliveries(1)
    clock.advance(0.6)
    assert await alice.accepted(1) == [n]
    assert await stored(network) == ["slow"]

    bob.ack(delivery)
    await bob.nothing_came()
    await bob.close()
    await network.stop()
    assert await stored(network) == []


async def test_an_offline_recipient_receives_everything_in_order_at_its_next_login(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    sent = [alice.send(ALICE, BOB, f"m{i}") for i in range(450)]
    assert await alice.accepted(450) == sent
    assert len(await stored(network)) == 450

    bob = await network.connect(BOB)
    deliveries = await bob.deliveries(450)
    assert ids(deliveries) == [f"m{i}" for i in range(450)]
    bob.ack(*deliveries)
    await bob.nothing_came()
    # This envelope arrives live, after the backlog.
    alice.send(ALICE, BOB, "live")
    assert ids(await bob.deliveries(1)) == ["live"]
    await network.stop()
    assert await stored(network) == ["live"]


async def test_envelopes_sent_while_the_backlog_is_read_arrive_after_it_and_once(network: Network) -> None:
    await network.start(limits=Limits(window=50, held=100))
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    for i in range(300):
        alice.send(ALICE, BOB, f"m{i}")
    await alice.accepted(300)
    bob = await network.connect(BOB)
    for i in range(300, 600):
        alice.send(ALICE, BOB, f"m{i}")
    seen: list[str] = []
    while len(seen) < 600:
        (delivery,) = await bob.deliveries(1)
        seen.append(delivery.id)
        bob.ack(delivery)
    assert seen == [f"m{i}" for i in range(600)]
    await alice.accepted(300)
    await bob.nothing_came()


async def test_unacknowledged_envelopes_repeat_on_the_next_connection_only(
    network: Network,
) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice = await network.connect(ALICE)
    alice.send(ALICE, BOB, "stored-1")
    alice.send(ALICE, BOB, "stored-2")
    await alice.accepted(2)
    bob = await network.connect(BOB)
    first = await bob.deliveries(2)
    alice.send(ALICE, BOB, "live")
    (live,) = await bob.deliveries(1)
    await bob.nothing_came()
    bob.ack(first[0])
    await bob.nothing_came()
    await bob.close()

    await alice.accepted(1)
    # Of two nodes, one deletes what was acknowledged while the device connects to the other.
    await until_there_are(network, rows=["stored-2", live.id], messages=[])
    again = await network.connect(BOB)
    deliveries = await again.deliveries(2)
    assert ids(deliveries) == ["stored-2", live.id]
    again.ack(*deliveries)
    await again.nothing_came()


async def test_envelopes_in_flight_or_held_at_a_disconnect_are_stored_and_accepted(network: Network) -> None:
    await network.start(limits=Limits(window=2), clock=ManualClock())
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    sent = [alice.send(ALICE, BOB, f"m{i}") for i in range(5)]
    await bob.deliveries(2)
    await alice.nothing_came()
    await bob.close()
    assert await alice.accepted(5) == sent
    assert await stored(network) == [f"m{i}" for i in range(5)]


async def test_a_full_window_holds_envelopes_back_until_an_acknowledgement(network: Network) -> None:
    await network.start(limits=Limits(window=3), clock=ManualClock())
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    for i in range(5):
        alice.send(ALICE, BOB, f"m{i}")
    deliveries = await bob.deliveries(3)
    await alice.nothing_came()
    await bob.nothing_came()
    bob.ack(deliveries[1])
    assert ids(await bob.deliveries(1)) == ["m3"]
    bob.ack(deliveries[0], deliveries[2])
    assert ids(await bob.deliveries(1)) == ["m4"]


async def test_an_overflowing_delivery_queue_uses_the_mailbox_and_keeps_the_order(network: Network) -> None:
    await network.start(limits=Limits(window=4, held=5), clock=ManualClock())
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    sent = [alice.send(ALICE, BOB, f"m{i}") for i in range(40)]
    first = await bob.deliveries(4)
    seen = ids(first)
    bob.ack(*first)
    while len(seen) < 40:
        (delivery,) = await bob.deliveries(1)
        seen.append(delivery.id)
        bob.ack(delivery)
    assert seen == [f"m{i}" for i in range(40)]
    await bob.nothing_came()
    # The acceptances come in any order: each follows when its envelope was stored or acknowledged.
    assert sorted(await alice.accepted(40)) == sent


async def test_envelopes_held_too_long_are_stored_and_still_arrive_in_order(network: Network) -> None:
    clock = ManualClock()
    await network.start(limits=Limits(window=2), clock=clock)
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    sent = [alice.send(ALICE, BOB, f"m{i}") for i in range(4)]
    first = await bob.deliveries(2)
    await alice.nothing_came()
    clock.advance(1)
    assert await alice.accepted(4) == sent
    alice.send(ALICE, BOB, "m4")
    bob.ack(*first)
    seen: list[str] = []
    while len(seen) < 3:
        (delivery,) = await bob.deliveries(1)
        seen.append(delivery.id)
        bob.ack(delivery)
    assert seen == ["m2", "m3", "m4"]


async def test_a_newer_login_replaces_the_older_and_takes_over_envelopes_in_flight(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    alice, old = await network.connect(ALICE), await network.connect(BOB, CAROL)
    n = alice.send(ALICE, BOB, "one")
    (delivery,) = await old.deliveries(1)
    new = await network.connect(BOB)
    closing = await old.next(device.Closing)
    assert (closing.reason, closing.number) == (device.REPLACED, BOB)
    assert await alice.accepted(1) == [n]
    (again,) = await new.deliveries(1)
    assert again.id == "one"
    # An acknowledgement on the old connection has no effect. Its other device is still attached.
    old.ack(delivery)
    await old.nothing_came()
    alice.send(ALICE, CAROL, "two")
    assert ids(await old.deliveries(1)) == ["two"]
    assert await stored(network) == ["one"]


async def test_a_newer_login_receives_live_envelopes_when_none_was_in_flight(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice, old = await network.connect(ALICE), await network.connect(BOB)
    new = await network.connect(BOB)
    assert (await old.next(device.Closing)).reason == device.REPLACED
    n = alice.send(ALICE, BOB, "one")
    new.ack(*await new.deliveries(1))
    assert await alice.accepted(1) == [n]


async def test_a_device_that_logged_out_receives_nothing_and_its_connection_stays_open(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    both = await network.connect(ALICE, BOB)
    assert isinstance(await both.request(lambda n: device.Logout(n=n, number=BOB)), device.Ok)
    n = both.send(ALICE, BOB, "one")
    assert await both.accepted(1) == [n]
    await both.nothing_came()


async def test_receipts_are_routed_like_messages(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    n = bob.send(BOB, ALICE, "receipt-1", kind=device.READ, body=b"", refs=["m1", "m2"])
    (receipt,) = await alice.deliveries(1)
    assert (receipt.kind, receipt.refs, receipt.body) == (device.READ, ["m1", "m2"], b"")
    alice.ack(receipt)
    assert await bob.accepted(1) == [n]


async def test_an_envelope_to_the_sender_itself_is_delivered(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    alice = await network.connect(ALICE)
    n = alice.send(ALICE, ALICE, "note")
    alice.ack(*await alice.deliveries(1))
    assert await alice.accepted(1) == [n]


async def test_a_repeated_undecided_envelope_is_accepted_once_on_the_newer_connection(
    network: Network,
) -> None:
    await network.start(clock=ManualClock())
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    alice.send(ALICE, BOB, "one")
    (delivery,) = await bob.deliveries(1)
    again = await network.connect(ALICE)
    n = again.send(ALICE, BOB, "one")
    await again.nothing_came()
    bob.ack(delivery)
    assert await again.accepted(1) == [n]
    await bob.nothing_came()


async def test_a_repeated_decided_envelope_is_accepted_at_once_and_dropped(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    alice, bob = await network.connect(ALICE, CAROL), await network.connect(BOB)
    alice.send(ALICE, BOB, "one")
    bob.ack(*await bob.deliveries(1))
    await alice.accepted(1)
    n = alice.send(ALICE, BOB, "one")
    assert await alice.accepted(1) == [n]
    await bob.nothing_came()
    # The same id from another sender is another envelope.
    alice.send(CAROL, BOB, "one")
    assert (await bob.deliveries(1))[0].sender == CAROL


async def test_envelopes_to_an_unregistered_number_are_refused(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    alice = await network.connect(ALICE)
    for number in ("15559999999", "1", "not a number", "", "१५५५००००००२"):
        n = alice.send(ALICE, number, "one")
        refused = await alice.next(device.Refused)
        assert (refused.n, refused.reason) == (n, device.NO_SUCH_NUMBER)
    # The number is looked up again, and found, once it has registered.
    await network.register("15559999999")
    alice.send(ALICE, "15559999999", "one")
    await alice.accepted(1)


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (device.INVALID, {"kind": "postcard"}),
        (device.INVALID, {"kind": device.EXPIRED}),
        (device.INVALID, {"kind": device.IDENTITY}),
        (device.INVALID, {"id": ""}),
        (device.INVALID, {"id": "x" * 65}),
        (device.INVALID, {"id": "söt"}),
        (device.INVALID, {"id": "one "}),
        (device.INVALID, {"id": " one"}),
        (device.INVALID, {"id": "o ne"}),
        (device.INVALID, {"id": "one\n"}),
        (device.INVALID, {"id": "one\x7f"}),
        (device.INVALID, {"ttl": -1}),
        (device.INVALID, {"refs": ["r"] * 1001}),
        (device.INVALID, {"refs": ["r" * 65]}),
        (device.INVALID, {"sender": CAROL}),
        (device.TOO_LARGE, {"body": bytes(128 * 1024 + 1)}),
    ],
)
async def test_envelopes_over_a_limit_are_refused_and_the_connection_stays_open(
    network: Network, reason: str, changes: dict[str, object]
) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    alice = await network.connect(ALICE)
    arguments = {"sender": ALICE, "to": BOB, "id": "one", **changes}
    n = alice.send(**arguments)  # type: ignore[arg-type]
    refused = await alice.next(device.Refused)
    assert (refused.n, refused.reason) == (n, reason)
    assert refused.detail
    n = alice.send(ALICE, BOB, "x" * 64, body=bytes(128 * 1024), refs=["r" * 64] * 1000)
    assert await alice.accepted(1) == [n]


async def test_a_sender_is_refused_once_its_block_is_confirmed(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    alice, bob = await network.connect(ALICE, CAROL), await network.connect(BOB)
    alice.send(ALICE, BOB, "one")
    bob.ack(*await bob.deliveries(1))
    await alice.accepted(1)

    path, token = f"/v1/blocks/{BOB}/{ALICE}", network.tokens[BOB]
    assert (await network.request("PUT", path, token=token))[0] == 200
    n = alice.send(ALICE, BOB, "two")
    refused = await alice.next(device.Refused)
    assert (refused.n, refused.reason) == (n, device.BLOCKED)
    alice.send(CAROL, BOB, "three")
    bob.ack(*await bob.deliveries(1))
    await alice.accepted(1)

    assert (await network.request("DELETE", path, token=token))[0] == 200
    alice.send(ALICE, BOB, "two")
    assert ids(await bob.deliveries(1)) == ["two"]


async def test_undecided_envelopes_over_the_limit_are_refused_as_overloaded(network: Network) -> None:
    await network.start(limits=Limits(undecided=3), clock=ManualClock())
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    for i in range(4):
        alice.send(ALICE, BOB, f"m{i}")
    assert (await alice.next(device.Refused)).reason == device.OVERLOADED
    bob.ack(*await bob.deliveries(3))
    await alice.accepted(3)
    alice.send(ALICE, BOB, "m3")
    assert ids(await bob.deliveries(1)) == ["m3"]


async def test_undecided_bytes_over_the_limit_are_refused_as_overloaded(network: Network) -> None:
    await network.start(limits=Limits(undecided_bytes=1000), clock=ManualClock())
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    alice.send(ALICE, BOB, "m0", body=bytes(400))
    alice.send(ALICE, BOB, "m1", body=bytes(400))
    assert (await alice.next(device.Refused)).reason == device.OVERLOADED
    bob.ack(*await bob.deliveries(1))
    await alice.accepted(1)
    # The size includes 256 bytes for the rest of the frame.
    alice.send(ALICE, BOB, "m1", body=bytes(1000 - 256))
    bob.ack(*await bob.deliveries(1))
    await alice.accepted(1)
