"""Bounds per sender: envelopes waiting in memory, and envelopes stored in all mailboxes together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from harness import polling
from network.groups import copies
from network.groups.copies import Copies, GroupUsage
from network.routing.mailbox_usage import StoredBytes
from network.routing.undecided import memory_quota
from network.settings import Limits, Quotas
from tests.manual_clock import ManualClock
from tests.network.group_support import changes, make
from tests.network.support import ALICE, BOB, CAROL, Client, Network, stored
from tests.network.test_group_messages import group_send
from tidings.aio.quota import Quota, QuotaUsage
from tidings.storage.network import mailbox
from tidings.wire import device

BODY = bytes(744)
SIZE = mailbox.size_of(BODY, [])
# Epoch of a group that two participants have joined.
EPOCH = 3


def test_one_sender_may_use_an_eighth_and_always_one_envelope() -> None:
    held, quota = QuotaUsage[str](), memory_quota(8000)
    for _ in range(10):
        assert held.has_room(quota, "a", 100)
        held.add("a", 100)
    assert not held.has_room(quota, "a", 1)
    assert held.has_room(quota, "b", 5000)
    assert not held.has_room(quota, "b", 7001)
    held.remove("a", 100)
    assert held.has_room(quota, "a", 100)


def test_stored_bytes_are_refunded_over_time_or_when_fetched() -> None:
    clock = ManualClock()
    bytes_ = StoredBytes(Quotas(stored_bytes=1000, stored_rate=10), clock, lambda number: 10 if number == "shop" else 1)
    bytes_.add("a", 900)
    assert "a" not in bytes_.empty
    bytes_.add("a", 200)
    refusal = bytes_.refusal_of("a")
    assert refusal is not None
    assert (refusal.reason, refusal.retry_after) == (device.RATE_LIMITED, 11)
    clock.advance(9)
    assert bytes_.refusal_of("a") is not None
    clock.advance(2)
    assert bytes_.refusal_of("a") is None
    assert "a" not in bytes_.empty

    bytes_.add("a", 5000)
    refusal = bytes_.refusal_of("a")
    assert refusal is not None
    assert refusal.retry_after == 60
    bytes_.remove("a", 5000)
    assert bytes_.refusal_of("a") is None
    bytes_.add("shop", 9_000)
    assert "shop" not in bytes_.empty
    unlimited = StoredBytes(Quotas(stored_bytes=1, stored_rate=0), clock, lambda number: 1)
    unlimited.add("a", 10**12)
    assert not unlimited.empty


async def refusal(client: Client) -> tuple[str, int]:
    frame = await client.next(device.Refused)
    return frame.reason, frame.retry_after


@pytest.mark.one_node
async def test_a_sender_over_its_stored_bytes_is_refused_until_they_are_fetched(network: Network) -> None:
    await network.start(quotas=Quotas(stored_bytes=2 * SIZE - 100, stored_rate=1))
    await network.register(ALICE, BOB, CAROL)
    alice = await network.connect(ALICE)
    for id in ("m0", "m1"):
        alice.send(ALICE, BOB, id, body=BODY)
        await alice.accepted(1)
    for id, reader in (("m3", BOB), ("m4", BOB), ("m3", BOB), ("m5", CAROL)):
        alice.send(ALICE, reader, id, body=BODY)
        assert await refusal(alice) == (device.RATE_LIMITED, 60)
    carol = await network.connect(CAROL)
    carol.send(CAROL, BOB, "of-carol")
    await carol.accepted(1)
    bob = await network.connect(BOB)
    bob.ack(*await bob.deliveries(3))

    async def is_fetched() -> bool:
        return await stored(network) == []

    await polling.until(is_fetched)
    alice.send(ALICE, CAROL, "m5")
    carol.ack(*await carol.deliveries(1))
    await alice.accepted(1)


@pytest.mark.one_node
async def test_group_copies_count_as_stored_bytes(network: Network) -> None:
    await network.start(quotas=Quotas(stored_bytes=2 * SIZE - 100, stored_rate=1))
    await network.register(ALICE, BOB, CAROL)
    group = await make(network, ALICE, BOB, CAROL)
    alice = await network.connect(ALICE)
    await changes(alice, 3)
    group_send(alice, ALICE, group, "g0", EPOCH, body=BODY)
    await alice.accepted(1)
    group_send(alice, ALICE, group, "g1", EPOCH, body=BODY)
    assert await refusal(alice) == (device.RATE_LIMITED, 60)


def test_a_group_counts_as_the_largest_size_until_its_size_is_known() -> None:
    share = GroupUsage()
    frame = device.Send(n=1, sender=ALICE, to="g", id="1", kind=device.GROUP, body=BODY, epoch=4)
    assert share.size_of(frame) == 256 * SIZE
    share.learn(frame, 3)
    assert share.size_of(frame) == 3 * SIZE
    frame.epoch = 5
    assert share.size_of(frame) == 256 * SIZE


@pytest.mark.one_node
async def test_copies_awaiting_the_database_are_bounded_in_bytes_per_sender(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits, flush = asyncio.Event(), Copies._flush

    async def held(self: Copies, frames: Sequence[device.Send]) -> Sequence[tuple[str, str]]:
        await commits.wait()
        return await flush(self, frames)

    monkeypatch.setattr(Copies, "_flush", held)
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    group = await make(network, ALICE, BOB, CAROL)
    alice = await network.connect(ALICE)
    await changes(alice, 3)
    group_send(alice, ALICE, group, "g0", EPOCH, body=BODY)
    commits.set()
    await alice.accepted(1)
    commits.clear()
    monkeypatch.setattr(copies, "COPIES", Quota(2**60, 5 * SIZE))
    for n in range(1, 4):
        group_send(alice, ALICE, group, f"g{n}", EPOCH, body=BODY)
    # Two messages have four copies. The third is sent again later, in its order.
    assert await refusal(alice) == (device.RATE_LIMITED, copies.TOO_MANY_WAIT.retry_after)
    commits.set()
    await alice.accepted(2)
    group_send(alice, ALICE, group, "g3", EPOCH, body=BODY)
    await alice.accepted(1)


@pytest.mark.one_node
async def test_undecided_bytes_per_sender_include_references_and_are_limited(network: Network) -> None:
    await network.start(limits=Limits(undecided_bytes=16 * SIZE), clock=ManualClock())
    await network.register(ALICE, BOB, CAROL)
    alice, bob, carol = [await network.connect(number) for number in (ALICE, BOB, CAROL)]
    for n in range(3):
        alice.send(ALICE, BOB, f"m{n}", body=BODY)
    assert await refusal(alice) == (device.OVERLOADED, 0)
    carol.send(CAROL, BOB, "r0", kind=device.READ, body=b"", refs=["x" * 60] * 10)
    carol.send(CAROL, BOB, "r1", kind=device.READ, body=b"", refs=["x" * 60] * 10)
    assert (await carol.next(device.Refused)).reason == device.OVERLOADED
    bob.ack(*await bob.deliveries(3))
    await alice.accepted(2)
    await carol.accepted(1)
