"""Copies of group messages for attached devices exist only in memory, while one row keeps the message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pymysql
import pytest
import sqlalchemy as sa

from network import services
from network.context import NetworkContext
from network.groups import kept_messages
from network.groups.kept_messages import KeptMessages, make_copy
from network.routing.reservations import Reservations
from network.settings import Limits, Quotas
from tests import statements
from tests.manual_clock import ManualClock
from tests.network.group_support import changes, group_send, make, pair_in_group, refusal
from tests.network.support import ALICE, BOB, CAROL, DAVE, TIMEOUT, Network, ids, kept, stored, until_there_are
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory, group_messages, mailbox
from tidings.storage.network.group_messages import StoredGroupMessage
from tidings.wire import device

pytestmark = pytest.mark.one_node


async def test_a_group_message_is_one_row_until_all_attached_members_acknowledge_it(network: Network) -> None:
    await network.start(limits=Limits(store_after=60.0))
    await network.register(ALICE, BOB, CAROL, DAVE)
    group = await make(network, ALICE, BOB, CAROL, DAVE)
    alice, bob, carol = [await network.connect(number) for number in (ALICE, BOB, CAROL)]
    await changes(alice, 4)
    await changes(bob, 3)
    await changes(carol, 2)
    async with asyncio.timeout(TIMEOUT):
        # Of the notices of changes only Dave's is left.
        while len(notices := await stored(network)) > 1:
            await carol.nothing_came()
    for i in range(5):
        group_send(alice, ALICE, group, f"m{i}", 4)
    await alice.accepted(5)
    expected = [f"m{i}" for i in range(5)]
    assert (await stored(network), await kept(network)) == ([*notices, *expected], expected)
    for client in (bob, carol):
        deliveries = await client.deliveries(5)
        assert ids(deliveries) == expected
        assert await kept(network) == expected
        client.ack(*deliveries)
    await until_there_are(network, rows=[*notices, *expected], messages=[])
    dave = await network.connect(DAVE)
    await changes(dave, 1)
    deliveries = await dave.deliveries(5)
    assert ids(deliveries) == expected
    dave.ack(*deliveries)
    await dave.nothing_came()
    await network.stop()
    assert (await stored(network), await kept(network)) == ([], [])


async def test_copies_for_attached_devices_need_no_mailbox_query(network: Network) -> None:
    await network.start()
    group, alice, bob = await pair_in_group(network)
    group_send(alice, ALICE, group, "settles", 2)
    await alice.accepted(1)
    bob.ack(*await bob.deliveries(1))
    await bob.nothing_came()
    with statements.recorded("FROM envelopes") as noted:
        for i in range(20):
            group_send(alice, ALICE, group, f"m{i}", 2)
        deliveries = await bob.deliveries(20)
        assert ids(deliveries) == [f"m{i}" for i in range(20)]
        bob.ack(*deliveries)
        await alice.accepted(20)
        await bob.nothing_came()
        assert [statement for statement in noted if not statement.startswith("DELETE")] == []
        # A device that connects reads its mailbox.
        await bob.close()
        group_send(alice, ALICE, group, "meanwhile", 2)
        await alice.accepted(1)
        bob = await network.connect(BOB)
        assert ids(await bob.deliveries(1)) == ["meanwhile"]
        assert any(statement.startswith("SELECT") for statement in noted)


async def test_an_unacknowledged_copy_is_stored_and_its_message_row_deleted(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock)
    group, alice, bob = await pair_in_group(network)
    for i in range(3):
        group_send(alice, ALICE, group, f"m{i}", 2)
    await alice.accepted(3)
    deliveries = await bob.deliveries(3)
    assert (await stored(network), await kept(network)) == ([], ["m0", "m1", "m2"])
    bob.ack(deliveries[1])
    await bob.nothing_came()
    clock.advance(0.6)
    await until_there_are(network, rows=["m0", "m2"], messages=[])
    bob.ack(deliveries[0], deliveries[2])
    await until_there_are(network, rows=[], messages=[])
    await bob.nothing_came()


async def test_an_uncertain_message_is_settled_after_failed_writes_which_hold_no_positions(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[KeptMessages] = []

    def make_and_note(context: NetworkContext) -> KeptMessages:
        made.append(KeptMessages(context))
        return made[-1]

    insert, held, failures = mailbox.insert, list[int](), 3

    async def fail_at_first(connection: Connection, rows: Sequence[mailbox.Envelope]) -> None:
        held.append(len(block.reserved))
        if len(held) <= failures:
            raise sa.exc.OperationalError("INSERT", {}, pymysql.err.OperationalError(1021, "Disk full"))
        await insert(connection, rows)

    def note(context: NetworkContext) -> Reservations:
        nonlocal block
        block = reservations(context)
        return block

    monkeypatch.setattr(services, "KeptMessages", make_and_note)
    monkeypatch.setattr(kept_messages, "RETRY_SECONDS", 0.0)
    await network.start(limits=Limits(store_after=60.0))
    group, alice, bob = await pair_in_group(network)
    group_send(alice, ALICE, group, "m", 2)
    await alice.accepted(1)
    await bob.deliveries(1)
    reservations, block = NetworkContext.reservations, made[0].context.reservations()
    monkeypatch.setattr(NetworkContext, "reservations", note)
    monkeypatch.setattr(mailbox, "insert", fail_at_first)
    async with network.reading() as connection:
        (message,) = await group_messages.list_first(connection, 10)
    made[0].suspect([message.seq])
    await until_there_are(network, rows=["m"], messages=[])
    # Other writes of the network may follow.
    assert (held[:4], max(held)) == ([1, 1, 1, 1], 1)


async def test_a_reconnecting_device_receives_its_copies_again_in_order(network: Network) -> None:
    await network.start(limits=Limits(window=2, store_after=60.0))
    group, alice, bob = await pair_in_group(network)
    for i in range(5):
        group_send(alice, ALICE, group, f"m{i}", 2)
    await alice.accepted(5)
    first, second = await bob.deliveries(2)
    bob.ack(first)
    assert ids([second, *await bob.deliveries(1)]) == ["m1", "m2"]
    await bob.close()
    group_send(alice, ALICE, group, "m5", 2)
    await alice.accepted(1)
    bob = await network.connect(BOB)
    group_send(alice, ALICE, group, "m6", 2)
    await alice.accepted(1)
    for i in range(1, 7):
        (delivery,) = await bob.deliveries(1)
        assert delivery.id == f"m{i}"
        bob.ack(delivery)
    await bob.nothing_came()
    await until_there_are(network, rows=[], messages=[])


async def test_a_clean_stop_moves_undecided_copies_to_mailboxes_and_keeps_no_message(network: Network) -> None:
    await network.start(limits=Limits(window=2, store_after=60.0))
    group, alice, bob = await pair_in_group(network)
    for i in range(5):
        group_send(alice, ALICE, group, f"m{i}", 2)
    await alice.accepted(5)
    bob.ack(*(await bob.deliveries(1)))
    await bob.deliveries(2)
    # Accepted or not, the message is stored completely or not at all.
    group_send(alice, ALICE, group, "last", 2)
    await network.stop()
    assert await kept(network) == []
    rows = await stored(network)
    assert rows[:4] == ["m1", "m2", "m3", "m4"]
    assert rows[4:] in ([], ["last"])
    await network.start()
    bob = await network.connect(BOB)
    deliveries = await bob.deliveries(len(rows))
    assert ids(deliveries) == rows
    bob.ack(*deliveries)
    await until_there_are(network, rows=[], messages=[])


async def test_copies_over_the_memory_limit_are_stored_with_the_message(network: Network) -> None:
    await network.start(limits=Limits(undecided=8, store_after=60.0))
    group, alice, bob = await pair_in_group(network)
    await until_there_are(network, rows=[], messages=[])
    seen: list[str] = []
    for turn in range(2):
        for i in range(5):
            group_send(alice, ALICE, group, f"{turn}-{i}", 2)
        await alice.accepted(5)
        names = [f"{turn}-{i}" for i in range(5)]
        assert (await stored(network), await kept(network)) == (names[2:], names[:2])
        deliveries = await bob.deliveries(5)
        seen += ids(deliveries)
        bob.ack(*deliveries)
        await until_there_are(network, rows=[], messages=[])
    assert seen == [f"{turn}-{i}" for turn in range(2) for i in range(5)]


async def test_messages_in_memory_are_bounded_by_bytes_per_sender(network: Network) -> None:
    await network.start(limits=Limits(undecided_bytes=4 * 8 * 10_000, store_after=60.0))
    group, alice, bob = await pair_in_group(network)
    await until_there_are(network, rows=[], messages=[])
    for i in range(4):
        group_send(alice, ALICE, group, f"m{i}", 2, body=bytes(4000))
        await alice.accepted(1)
    assert (await stored(network), await kept(network)) == (["m2", "m3"], ["m0", "m1"])
    assert ids(await bob.deliveries(4)) == ["m0", "m1", "m2", "m3"]


async def test_the_mailbox_quota_of_a_decided_copy_is_refunded(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, quotas=Quotas(share=2))
    group, alice, bob = await pair_in_group(network)
    for turn in range(4):
        for i in range(3):
            group_send(alice, ALICE, group, f"{turn}-{i}", 2)
            await alice.accepted(1)
        deliveries = await bob.deliveries(2)
        assert ids(deliveries) == [f"{turn}-0", f"{turn}-1"]
        await bob.nothing_came()
        if turn % 2:
            clock.advance(0.6)
            await until_there_are(network, rows=ids(deliveries), messages=[])
        bob.ack(*deliveries)
        await until_there_are(network, rows=[], messages=[])


async def test_a_copy_and_a_private_message_may_share_an_id(network: Network) -> None:
    await network.start(limits=Limits(store_after=60.0))
    group, alice, bob = await pair_in_group(network)
    private = alice.send(ALICE, BOB, "same")
    public = group_send(alice, ALICE, group, "same", 2)
    assert await alice.accepted(1) == [public]
    deliveries = {delivery.kind: delivery for delivery in await bob.deliveries(2)}
    bob.ack(deliveries[device.GROUP])
    await bob.nothing_came()
    await alice.nothing_came()
    bob.ack(deliveries[device.MESSAGE])
    assert await alice.accepted(1) == [private]


async def test_a_block_applies_immediately_despite_the_block_cache(network: Network) -> None:
    await network.start()
    group, alice, bob = await pair_in_group(network)
    for turn, blocks in enumerate((False, True, False)):
        method = "PUT" if blocks else "DELETE"
        await network.request(method, f"/v1/blocks/{BOB}/{ALICE}", token=network.tokens[BOB])
        group_send(alice, ALICE, group, f"m{turn}", 2)
        await alice.accepted(1)
        if not blocks:
            (delivery,) = await bob.deliveries(1)
            bob.ack(delivery)
        await bob.nothing_came()
        alice.send(ALICE, BOB, f"private{turn}")
        if blocks:
            assert await refusal(alice) == device.BLOCKED
        else:
            bob.ack(*await bob.deliveries(1))
            await alice.accepted(1)


async def test_messages_left_by_a_process_are_delivered_once_in_order_with_stored_ones(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock)
    await network.register(ALICE, BOB, CAROL)
    await network.stop()
    now = int(clock.now() * 1000)

    def message(id: str, copies: dict[str, int], expires_at: int = now + 60_000) -> StoredGroupMessage:
        seq = max(copies.values(), default=0)
        return StoredGroupMessage(seq, ALICE, id, now, expires_at, b"sealed", [], "t", f"{ALICE}-5", copies=copies)

    database = Database(network.database, "network")
    async with database.transaction() as connection:
        left = [
            message("first", {BOB: 5, CAROL: 6}),
            message("stored", {BOB: 9, CAROL: 10}),
            message("late", {BOB: 11}, expires_at=now - 1),
            message("last", {CAROL: 2**40}),
        ]
        await group_messages.add(connection, left)
        rows = [make_copy(message(id_, {}), BOB, seq) for seq, id_ in [(8, "between"), (9, "stored"), (12, "behind")]]
        await mailbox.insert(connection, rows)
        assert await directory.list_registered(connection, [BOB, CAROL]) == {BOB, CAROL}
    await database.close()
    await network.start(clock=clock)
    assert await kept(network) == []
    bob, carol = await network.connect(BOB), await network.connect(CAROL)
    deliveries = await bob.deliveries(4)
    assert [(d.id, d.kind, d.group, d.trace, d.body) for d in deliveries] == [
        (id_, device.GROUP, f"{ALICE}-5", "t", b"sealed") for id_ in ("first", "between", "stored", "behind")
    ]
    bob.ack(*deliveries)
    deliveries = await carol.deliveries(3)
    assert ids(deliveries) == ["first", "stored", "last"]
    carol.ack(*deliveries)
    for client in (bob, carol):
        await client.nothing_came()
    await network.stop()
    assert await stored(network) == []
